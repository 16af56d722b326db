//! Which datapath the nodes' Open vSwitch uses.

/// Variable that chooses the datapath: `kernel`, or unset for the userspace one.
pub const DATAPATH_VARIABLE: &str = "DEVCLUSTER_DATAPATH";

/// A datapath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datapath {
    /// In ovs-vswitchd itself: works on every machine.
    Userspace,
    /// The kernel's module openvswitch.
    Kernel,
}

impl Datapath {
    /// The one [`DATAPATH_VARIABLE`] names.
    pub fn chosen() -> Datapath {
        match std::env::var(DATAPATH_VARIABLE) {
            Ok(name) if name == "kernel" => Datapath::Kernel,
            _ => Datapath::Userspace,
        }
    }

    /// Its `datapath_type` in Open vSwitch's database.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Datapath::Userspace => "netdev",
            Datapath::Kernel => "system",
        }
    }
}
