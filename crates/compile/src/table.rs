//! The tables we write, and how rows hang together.

/// The databases of a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Db {
    /// `OVN_Northbound`.
    Nb,
    /// `OVN_Southbound`.
    Sb,
}

impl Db {
    /// The database's name in OVSDB.
    pub fn name(self) -> &'static str {
        match self {
            Db::Nb => "OVN_Northbound",
            Db::Sb => "OVN_Southbound",
        }
    }
}

/// A table of one of the databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// The database.
    pub db: Db,
    /// The table's name.
    pub name: &'static str,
    /// Whether rows live only as long as another row refers to them.
    pub owned: bool,
}

macro_rules! tables {
    ($($(#[$doc:meta])* $name:ident = $db:ident $table:literal $owned:literal;)*) => {
        $($(#[$doc])* pub const $name: Table = Table { db: Db::$db, name: $table, owned: $owned };)*
        /// Every table a planner watches.
        pub const ALL: &[Table] = &[$($name),*];
    };
}

tables! {
    /// Access-control rules.
    ACL = Nb "ACL" true;
    /// Sets of addresses.
    ADDRESS_SET = Nb "Address_Set" false;
    /// Control-plane protection.
    COPP = Nb "Copp" false;
    /// Chassis a distributed gateway port may live on.
    GATEWAY_CHASSIS = Nb "Gateway_Chassis" true;
    /// Values template load balancers take from the chassis they work on.
    CHASSIS_TEMPLATE_VAR = Nb "Chassis_Template_Var" false;
    /// Load balancers.
    LOAD_BALANCER = Nb "Load_Balancer" false;
    /// Sets of load balancers.
    LOAD_BALANCER_GROUP = Nb "Load_Balancer_Group" false;
    /// Routers.
    ROUTER = Nb "Logical_Router" false;
    /// Routing policies.
    ROUTER_POLICY = Nb "Logical_Router_Policy" true;
    /// Router ports.
    ROUTER_PORT = Nb "Logical_Router_Port" true;
    /// Static routes.
    STATIC_ROUTE = Nb "Logical_Router_Static_Route" true;
    /// Switches.
    SWITCH = Nb "Logical_Switch" false;
    /// Switch ports.
    SWITCH_PORT = Nb "Logical_Switch_Port" true;
    /// Address translation of routers.
    NAT = Nb "NAT" true;
    /// Neighbours a router need not ask for.
    STATIC_MAC_BINDING = Nb "Static_MAC_Binding" false;
    /// Meters.
    METER = Nb "Meter" false;
    /// Bands of meters.
    METER_BAND = Nb "Meter_Band" true;
    /// Port groups.
    PORT_GROUP = Nb "Port_Group" false;
    /// Tunnel end points of other zones' nodes.
    CHASSIS = Sb "Chassis" false;
    /// Encapsulations of a chassis.
    ENCAP = Sb "Encap" true;
}

/// Columns in which a row is listed by the owner of the *listed* row: ports of a switch, members of a group.
pub const MEMBERSHIPS: &[(Table, &str)] = &[
    (SWITCH, "ports"),
    (SWITCH, "acls"),
    (SWITCH, "load_balancer"),
    (ROUTER, "ports"),
    (ROUTER, "static_routes"),
    (ROUTER, "policies"),
    (ROUTER, "nat"),
    (ROUTER, "load_balancer"),
    (LOAD_BALANCER_GROUP, "load_balancer"),
    (PORT_GROUP, "ports"),
    (PORT_GROUP, "acls"),
];
