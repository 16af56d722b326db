//! Typed rows against the schemas they come from, and against older ones.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without must fail it")]

use std::{collections::BTreeMap, sync::Arc};

use ovn::{Table, nb, sb, vswitch};
use ovsdb::{Datum, MonitorSpec, Name, Op, Row, Schema, Uuid};

fn schema(name: &str) -> Schema {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schema").join(name);
    Schema::parse(&std::fs::read(path).unwrap()).unwrap()
}

fn columns_match<T: Table>(schema: &Schema) {
    let table = schema.table(T::TABLE).unwrap_or_else(|| panic!("{} is not in the schema", T::TABLE));
    let names: Vec<&str> = table.columns().iter().map(|c| &*c.name).collect();
    assert_eq!(T::COLUMNS, names, "{}", T::TABLE);
    // An empty row of ours is the row the server makes without any column. References that must be there
    // have no default worth the name.
    let empty = T::from_row(&Row::new(table, Uuid::NIL, Vec::<(Name, Datum)>::new()));
    for (column, (name, value)) in table.columns().iter().zip(empty.all_columns()) {
        if column.kind.min == 0 || column.kind.is_scalar() {
            assert_eq!((&*column.name, &column.default), (&*name, &value), "{}", T::TABLE);
        }
    }
}

#[test]
fn fields_are_the_schemas_columns() {
    let northbound = schema("ovn-nb.ovsschema");
    columns_match::<nb::LogicalSwitchPort>(&northbound);
    columns_match::<nb::Acl>(&northbound);
    columns_match::<nb::LoadBalancer>(&northbound);
    columns_match::<nb::QoS>(&northbound);
    columns_match::<nb::NbGlobal>(&northbound);
    let southbound = schema("ovn-sb.ovsschema");
    columns_match::<sb::Chassis>(&southbound);
    columns_match::<sb::PortBinding>(&southbound);
    columns_match::<sb::RbacPermission>(&southbound);
    let switch = schema("vswitch.ovsschema");
    columns_match::<vswitch::OpenVSwitch>(&switch);
    columns_match::<vswitch::Interface>(&switch);
    columns_match::<vswitch::Queue>(&switch);
}

fn filled() -> nb::LogicalSwitchPort {
    nb::LogicalSwitchPort {
        uuid: Uuid::from_u128(1),
        name: "ns_pod".into(),
        addresses: ["0a:58:0a:f4:00:05 10.244.0.5".to_owned()].into(),
        dhcpv4_options: Some(Uuid::from_u128(2)),
        enabled: Some(false),
        tag: Some(7),
        mirror_rules: [Uuid::from_u128(3), Uuid::from_u128(4)].into(),
        options: BTreeMap::from([("requested-chassis".to_owned(), "node1".to_owned())]),
        ..Default::default()
    }
}

#[test]
fn a_row_round_trips() {
    let northbound = schema("ovn-nb.ovsschema");
    let port = filled();
    let row = Row::new(northbound.table(nb::LogicalSwitchPort::TABLE).unwrap(), port.uuid, port.to_columns());
    assert_eq!(row.get(nb::LogicalSwitchPort::ENABLED), Some(&Datum::from(false)));
    assert_eq!(nb::LogicalSwitchPort::from_row(&row), port);
    let Op::Insert { table, uuid, row } = port.insert() else { panic!("not an insert") };
    assert_eq!((&*table, uuid, row.len()), ("Logical_Switch_Port", port.uuid, 7));
}

#[test]
fn columns_of_the_future_are_read_as_default() {
    let northbound = schema("ovn-nb.ovsschema");
    let older = northbound.monitored(&MonitorSpec::none().table("Logical_Switch_Port", &["name", "options"]));
    let port = filled();
    let table: &Arc<_> = older.table(nb::LogicalSwitchPort::TABLE).unwrap();
    let read = nb::LogicalSwitchPort::from_row(&Row::new(table, port.uuid, port.to_columns()));
    let want = nb::LogicalSwitchPort {
        uuid: port.uuid,
        name: port.name.clone(),
        options: port.options.clone(),
        ..Default::default()
    };
    assert_eq!(read, want);
    let written = older.capabilities().known(nb::LogicalSwitchPort::TABLE, port.all_columns());
    assert_eq!(written.len(), 2);
}
