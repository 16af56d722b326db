//! Names, paths, secrets and closed sets of words.

use super::Codec;
use std::{fmt, path::PathBuf};

/// Any text.
pub(crate) struct Text;
impl Codec for Text {
    type Out = String;
    const PLACEHOLDER: &'static str = "TEXT";
    fn parse(text: &str) -> Result<String, String> {
        Ok(text.to_owned())
    }
}

/// Text that may be unset.
pub(crate) struct OptionalText;
impl Codec for OptionalText {
    type Out = Option<String>;
    const PLACEHOLDER: &'static str = "TEXT";
    fn parse(text: &str) -> Result<Option<String>, String> {
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }
}

/// A path.
pub(crate) struct Path;
impl Codec for Path {
    type Out = PathBuf;
    const PLACEHOLDER: &'static str = "PATH";
    fn parse(text: &str) -> Result<PathBuf, String> {
        Ok(text.into())
    }
}

/// A path that may be unset.
pub(crate) struct OptionalPath;
impl Codec for OptionalPath {
    type Out = Option<PathBuf>;
    const PLACEHOLDER: &'static str = "PATH";
    fn parse(text: &str) -> Result<Option<PathBuf>, String> {
        Ok((!text.is_empty()).then(|| text.into()))
    }
}

/// A value that prints as dots.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself; keep it out of logs.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A secret that may be unset.
pub(crate) struct SecretText;
impl Codec for SecretText {
    type Out = Option<Secret>;
    const PLACEHOLDER: &'static str = "SECRET";
    fn parse(text: &str) -> Result<Option<Secret>, String> {
        Ok((!text.is_empty()).then(|| Secret::new(text.trim())))
    }
}

/// A comma list of words.
pub(crate) struct Words;
impl Codec for Words {
    type Out = Vec<String>;
    const PLACEHOLDER: &'static str = "WORD,...";
    fn parse(text: &str) -> Result<Vec<String>, String> {
        Ok(text.split(',').map(str::trim).filter(|w| !w.is_empty()).map(str::to_owned).collect())
    }
}

/// `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

impl fmt::Display for NamespacedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A comma list of `namespace/name`.
pub(crate) struct Names;
impl Codec for Names {
    type Out = Vec<NamespacedName>;
    const PLACEHOLDER: &'static str = "NAMESPACE/NAME,...";
    fn parse(text: &str) -> Result<Self::Out, String> {
        let words = Words::parse(text)?;
        words
            .iter()
            .map(|word| match word.split_once('/') {
                Some((namespace, name))
                    if !namespace.is_empty() && !name.is_empty() && !name.contains('/') =>
                {
                    Ok(NamespacedName { namespace: namespace.into(), name: name.into() })
                }
                _ => Err(format!("has {word:?}, which is not NAMESPACE/NAME")),
            })
            .collect()
    }
}

/// A closed set of words.
pub(crate) trait Word: Sized + PartialEq {
    const PLACEHOLDER: &'static str;
    fn find(text: &str) -> Option<Self>;
    fn all() -> &'static [&'static str];
}

/// One word of a closed set.
pub(crate) struct Choice<T>(std::marker::PhantomData<T>);
impl<T: Word> Codec for Choice<T> {
    type Out = T;
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    fn parse(text: &str) -> Result<T, String> {
        T::find(text).ok_or_else(|| format!("is not one of {}", T::all().join(", ")))
    }
}

/// One word of a closed set, or unset.
pub(crate) struct OptionalChoice<T>(std::marker::PhantomData<T>);
impl<T: Word> Codec for OptionalChoice<T> {
    type Out = Option<T>;
    const PLACEHOLDER: &'static str = T::PLACEHOLDER;
    fn parse(text: &str) -> Result<Option<T>, String> {
        if text.is_empty() { Ok(None) } else { Choice::<T>::parse(text).map(Some) }
    }
}

macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident, $placeholder:literal; $( $(#[doc = $vdoc:literal])+ $variant:ident = $text:literal, )+) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name { $( $(#[doc = $vdoc])+ $variant, )+ }

        impl $name {
            /// The word as it is written.
            pub fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text, )+ }
            }
        }

        impl Word for $name {
            const PLACEHOLDER: &'static str = $placeholder;
            fn find(text: &str) -> Option<Self> {
                match text { $( $text => Some(Self::$variant), )+ _ => None }
            }
            fn all() -> &'static [&'static str] {
                &[$($text),+]
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// How traffic leaves the node.
    GatewayMode, "MODE";
    /// Through OVN and the gateway bridge only.
    Shared = "shared",
    /// Through the host's network stack.
    Local = "local",
}
words! {
    /// Where the node agent runs.
    NodeMode, "MODE";
    /// On an ordinary node.
    Full = "full",
    /// On the data processing unit.
    Dpu = "dpu",
    /// On the host that has a data processing unit.
    DpuHost = "dpu-host",
}
words! {
    /// Tunnel protocol between nodes.
    EncapType, "TYPE";
    /// Geneve.
    Geneve = "geneve",
    /// VXLAN.
    Vxlan = "vxlan",
}
words! {
    /// How pod traffic crosses nodes.
    Transport, "TRANSPORT";
    /// Routed by the underlay.
    NoOverlay = "no-overlay",
}
words! {
    /// Version that the CNI configuration announces.
    CniVersion, "VERSION";
    /// Specification 0.3.1.
    V0_3_1 = "0.3.1",
    /// Specification 0.4.0.
    V0_4_0 = "0.4.0",
    /// Specification 1.0.0.
    V1_0_0 = "1.0.0",
    /// Specification 1.1.0.
    V1_1_0 = "1.1.0",
}
words! {
    /// How advertised user-defined networks are kept apart.
    IsolationMode, "MODE";
    /// No traffic between them.
    Strict = "strict",
    /// The underlay decides.
    Loose = "loose",
}
words! {
    /// Whether traffic that leaves the cluster is masqueraded without an overlay.
    OutboundSnat, "WORD";
    /// It is.
    Enabled = "enabled",
    /// It is not.
    Disabled = "disabled",
}
words! {
    /// Who sets up BGP without an overlay.
    NoOverlayRouting, "WORD";
    /// We do.
    Managed = "managed",
    /// The administrator does.
    Unmanaged = "unmanaged",
}
words! {
    /// Shape of the managed BGP sessions.
    BgpTopology, "WORD";
    /// Every node with every node.
    FullMesh = "full-mesh",
}
words! {
    /// Oldest TLS version that servers accept.
    TlsVersion, "VERSION";
    /// TLS 1.0; raised to 1.2.
    V10 = "VersionTLS10",
    /// TLS 1.1; raised to 1.2.
    V11 = "VersionTLS11",
    /// TLS 1.2.
    V12 = "VersionTLS12",
    /// TLS 1.3.
    V13 = "VersionTLS13",
}
words! {
    /// The platform the cluster runs on.
    Platform, "PLATFORM";
    /// Amazon Web Services.
    Aws = "AWS",
    /// Microsoft Azure.
    Azure = "Azure",
    /// Bare metal.
    BareMetal = "BareMetal",
    /// Google Cloud.
    Gcp = "GCP",
    /// libvirt.
    Libvirt = "Libvirt",
    /// OpenStack.
    OpenStack = "OpenStack",
    /// None of these.
    None = "None",
    /// vSphere.
    VSphere = "VSphere",
    /// oVirt.
    OVirt = "oVirt",
    /// IBM Cloud.
    IbmCloud = "IBMCloud",
    /// KubeVirt.
    KubeVirt = "KubeVirt",
    /// Equinix Metal.
    EquinixMetal = "EquinixMetal",
    /// Power Virtual Server.
    PowerVs = "PowerVS",
    /// Alibaba Cloud.
    AlibabaCloud = "AlibabaCloud",
    /// Nutanix.
    Nutanix = "Nutanix",
    /// A platform integrated from outside.
    External = "External",
}

impl Platform {
    /// Whether the cloud must be asked to move an egress address.
    pub fn assigns_egress_addresses(self) -> bool {
        matches!(self, Self::Aws | Self::Azure | Self::Gcp | Self::OpenStack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_do_not_print() {
        assert!(!format!("{:?}", SecretText::parse("topsecret").unwrap()).contains("topsecret"));
    }

    #[test]
    fn names_and_choices() {
        assert_eq!(Names::parse("a/b, c/d").unwrap().len(), 2);
        assert!(Names::parse("a/b/c").is_err());
        assert!(Names::parse("a/").is_err());
        assert_eq!(OptionalChoice::<GatewayMode>::parse(""), Ok(None));
        assert_eq!(Choice::<NodeMode>::parse("x"), Err("is not one of full, dpu, dpu-host".into()));
    }
}
