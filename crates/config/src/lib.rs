//! Flags, environment and configuration file become one validated [`Config`] that knows where each value came from.
//!
//! ```text
//!   command line ─ args ─┐
//!   INI file ───── ini ──┼─▶ resolve ─▶ values (text + origin) ─▶ typed sections ─▶ validate ─▶ Config
//!   environment ─────────┤                    ▲
//!   service account ─────┘            options: one table of all settings
//! ```
//!
//! Pure: the caller passes the arguments, the environment and a function that reads files. Priority, strongest first:
//! command line, file, environment, service account, default. An empty value means unset.

mod access;
mod args;
mod codec;
mod error;
pub mod features;
mod ini;
pub mod options;
mod origin;
pub mod report;
mod resolve;
pub mod spec;
mod suggest;
mod validate;
mod values;
mod warning;

pub use access::ApiAccess;
pub use codec::{
    BgpTopology, ClusterSubnet, CniVersion, EncapType, GatewayMode, IsolationMode, Listen, NamespacedName,
    NoOverlayRouting, NodeMode, OutboundSnat, Platform, PortRange, Secret, TlsVersion, Transport,
};
pub use error::ConfigError;
pub use origin::Origin;
pub use validate::NamedRange;
pub use warning::Warning;

use std::{io, path::Path};
use values::Values;

/// Where settings are read from.
pub struct Source<'a> {
    /// Arguments after the program's name.
    pub args: &'a [String],
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Reads a file.
    pub read_file: &'a dyn Fn(&Path) -> io::Result<Vec<u8>>,
}

/// All settings, checked, by the sections of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// What the process is to do.
    pub roles: options::Roles,
    /// The process itself.
    pub process: options::Process,
    /// `[logging]`
    pub logging: options::Logging,
    /// `[kubernetes]`
    pub kubernetes: options::Kubernetes,
    /// How to reach the Kubernetes API, credentials read.
    pub api: ApiAccess,
    /// `[default]`: the pod network.
    pub default: options::Default,
    /// `[clustermanager]`
    pub cluster_manager: options::ClusterManager,
    /// `[clustermgrha]`
    pub cluster_manager_ha: options::ClusterManagerHa,
    /// `[ovnnorth]`
    pub northbound: options::Northbound,
    /// `[ovnsouth]`
    pub southbound: options::Southbound,
    /// `[ovspaths]`
    pub ovs: options::OvsPaths,
    /// `[cni]`
    pub cni: options::Cni,
    /// `[gateway]`
    pub gateway: options::Gateway,
    /// `[ovnkubenode]`
    pub node: options::OvnkubeNode,
    /// `[metrics]`
    pub metrics: options::Metrics,
    /// `[tls]`
    pub tls: options::Tls,
    /// `[ovnkubernetesfeature]`
    pub features: options::Features,
    /// `[egressip-healthcheck-tls]`
    pub egressip_healthcheck_tls: options::EgressIpHealthcheckTls,
    /// `[hybridoverlay]`
    pub hybrid_overlay: options::HybridOverlay,
    /// `[no-overlay]`
    pub no_overlay: options::NoOverlay,
    /// `[bgp-managed]`
    pub bgp_managed: options::BgpManaged,
    /// `[monitoring]`
    pub monitoring: options::Monitoring,
    /// `[ipfix]`
    pub ipfix: options::Ipfix,
    values: Values,
}

/// Reads and checks the configuration.
///
/// # Errors
/// Everything that is wrong with values or their combination is reported at once, each with the value's origin and a cure.
pub fn load(source: &Source<'_>) -> Result<(Config, Vec<Warning>), ConfigError> {
    let (mut values, mut warnings) = resolve::resolve(source)?;
    derive(source, &mut values);
    let config = Config::from_values(source, values)?;
    validate::validate(&config, &mut warnings)?;
    Ok((config, warnings))
}

/// Values that follow from others where nobody set them.
fn derive(source: &Source<'_>, values: &mut Values) {
    if let Some(spec) = options::by_name("cluster-default-nad")
        && values.is_default(spec.name)
    {
        let nad = format!("{}/default", values.text("ovn-config-namespace").trim());
        values.set(spec, nad, Origin::Default);
    }
    let path = Path::new("/proc/sys/net/ipv4/ip_local_port_range");
    if let Some(spec) = options::by_name("ephemeral-port-range")
        && values.is_default(spec.name)
        && !values.text("gateway-mode").is_empty()
        && let Ok(text) = (source.read_file)(path)
        && let Some((min, max)) = String::from_utf8_lossy(&text).trim().split_once(char::is_whitespace)
    {
        let range = format!("{}-{}", min.trim(), max.trim());
        if (spec.check)(&range).is_ok() {
            values.set(spec, range, Origin::Kernel { path: path.to_owned() });
        }
    }
}

impl Config {
    fn from_values(source: &Source<'_>, values: Values) -> Result<Self, ConfigError> {
        let kubernetes = options::Kubernetes::read(&values)?;
        Ok(Self {
            roles: options::Roles::read(&values)?,
            process: options::Process::read(&values)?,
            logging: options::Logging::read(&values)?,
            api: ApiAccess::read(source, &kubernetes, &values)?,
            kubernetes,
            default: options::Default::read(&values)?,
            cluster_manager: options::ClusterManager::read(&values)?,
            cluster_manager_ha: options::ClusterManagerHa::read(&values)?,
            northbound: options::Northbound::read(&values)?,
            southbound: options::Southbound::read(&values)?,
            ovs: options::OvsPaths::read(&values)?,
            cni: options::Cni::read(&values)?,
            gateway: options::Gateway::read(&values)?,
            node: options::OvnkubeNode::read(&values)?,
            metrics: options::Metrics::read(&values)?,
            tls: options::Tls::read(&values)?,
            features: options::Features::read(&values)?,
            egressip_healthcheck_tls: options::EgressIpHealthcheckTls::read(&values)?,
            hybrid_overlay: options::HybridOverlay::read(&values)?,
            no_overlay: options::NoOverlay::read(&values)?,
            bgp_managed: options::BgpManaged::read(&values)?,
            monitoring: options::Monitoring::read(&values)?,
            ipfix: options::Ipfix::read(&values)?,
            values,
        })
    }

    /// Where the setting of that name (a flag's name, or [`spec::Spec::name`]) came from; none for an unknown name.
    pub fn origin(&self, name: &str) -> Option<&Origin> {
        self.values.entry(name).map(|v| &v.origin)
    }

    /// The setting with its text and origin, for messages: `--mtu "1300" (from command line)`. Secrets are left out.
    pub fn described(&self, name: &str) -> String {
        self.values.described(name)
    }

    /// Checks ranges known only at run time, such as node addresses, against those of the configuration.
    ///
    /// # Errors
    /// Every overlap; each message names both ranges, where they come from and what to change.
    pub fn check_ranges(&self, others: &[NamedRange]) -> Result<(), ConfigError> {
        validate::check_ranges(self, others)
    }

    /// Whether somebody set it, the kernel's own values apart.
    fn is_set(&self, name: &str) -> bool {
        !matches!(self.origin(name), None | Some(Origin::Default | Origin::Kernel { .. }))
    }

    /// Whether a switch is on.
    fn is_on(&self, name: &str) -> bool {
        options::by_name(name).is_some_and(|s| s.boolean && (s.same)(self.values.text(name), "true"))
    }
}
