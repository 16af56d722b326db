//! How the text of a setting becomes a value.

mod address;
mod number;
mod text;

pub(crate) use address::{
    Addresses, ClusterSubnets, HybridSubnets, ListenAddress, OptionalNet, ServiceNets, SubnetV4, SubnetV6,
    Targets,
};
pub use address::{ClusterSubnet, Listen};
pub use number::PortRange;
pub(crate) use number::Ports;
pub(crate) use number::{Bool, GoDuration, Millis, Number, Seconds, VlanId};
pub use text::{BgpTopology, NoOverlayRouting, OutboundSnat, TlsVersion, Transport};
pub(crate) use text::{
    Choice, Names, OptionalChoice, OptionalPath, OptionalText, Path, SecretText, Text, Words,
};
pub use text::{
    CniVersion, EncapType, GatewayMode, IsolationMode, NamespacedName, NodeMode, Platform, Secret,
};

/// Reads one kind of value. The empty text is only ever the default and means "unset".
pub(crate) trait Codec {
    /// The typed value.
    type Out: PartialEq;
    /// What stands for the value in `--help`.
    const PLACEHOLDER: &'static str;
    /// See [`crate::spec::Spec::boolean`].
    const BOOLEAN: bool = false;
    /// See [`crate::spec::Spec::weak_default`].
    const WEAK_DEFAULT: bool = false;

    /// The value of `text`, or what is wrong with it ("is not …", to follow the quoted text).
    fn parse(text: &str) -> Result<Self::Out, String>;
}
