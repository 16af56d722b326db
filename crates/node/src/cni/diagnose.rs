//! Why a port is not installed: asked only when the wait for it has failed, so it keeps no data.

use std::{future::Future, pin::Pin, time::Duration};

use ovsdb::{Client, Filter, MonitorSpec, Notices, Op, OpResult, Options};

/// The step that is missing between a plugged port and working flows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The Northbound database has no such port.
    LogicalPort,
    /// The Southbound database has no binding row: northd has not run.
    Binding,
    /// No chassis has claimed the port.
    Claim,
    /// Another chassis has the port.
    BoundTo(String),
    /// Bound here, but the flows are not installed.
    Flows,
    /// It could not be found out, and why.
    Unknown(String),
}

/// Finds the missing step for a logical port.
pub trait Diagnose: Send + Sync {
    /// Asks the databases; must end within a few seconds.
    fn missing<'a>(&'a self, logical_port: &'a str) -> Pin<Box<dyn Future<Output = Missing> + Send + 'a>>;
}

/// Asks the local OVN databases, connecting for the question only.
#[derive(Debug, Clone)]
pub struct OvnDiagnosis {
    /// How to reach the Northbound database.
    pub northbound: Options,
    /// How to reach the Southbound database.
    pub southbound: Options,
    /// `system-id` of this node's chassis.
    pub chassis: String,
    /// Bound of one question.
    pub patience: Duration,
}

// === impl Missing ===

impl Missing {
    /// A sentence for the operator: what is missing and where to look.
    pub fn describe(&self, logical_port: &str) -> String {
        match self {
            Missing::LogicalPort => format!(
                "the Northbound database has no logical port {logical_port}: ovnkube's controller on this node has not created it"
            ),
            Missing::Binding => format!(
                "logical port {logical_port} exists but the Southbound database has no binding for it: check ovn-northd"
            ),
            Missing::Claim => format!(
                "logical port {logical_port} is not bound to any chassis: check that ovn-controller runs on this node and that ovn-remote in Open vSwitch is right"
            ),
            Missing::BoundTo(chassis) => format!(
                "logical port {logical_port} is bound to another chassis, {chassis}: the pod still runs there, or two nodes have the same system-id"
            ),
            Missing::Flows => format!(
                "logical port {logical_port} is bound to this node but its flows are not installed: check ovn-controller and ovs-vswitchd"
            ),
            Missing::Unknown(why) => {
                format!("the OVN databases could not be asked about logical port {logical_port}: {why}")
            }
        }
    }
}

// === impl OvnDiagnosis ===

impl OvnDiagnosis {
    async fn ask(&self, logical_port: &str) -> Result<Missing, String> {
        let port = |column: &'static str| Filter::equal(column, logical_port);
        let northbound = connect(&self.northbound);
        let found = self
            .select(&northbound, "Northbound", Op::select("Logical_Switch_Port", port("name"), &["name"]))
            .await?;
        if found.rows.is_empty() {
            return Ok(Missing::LogicalPort);
        }
        let southbound = connect(&self.southbound);
        let binding = self
            .select(&southbound, "Southbound", Op::select("Port_Binding", port("logical_port"), &["chassis"]))
            .await?;
        let Some(row) = binding.rows.first() else { return Ok(Missing::Binding) };
        let Some(chassis) = row.get("chassis").and_then(|d| d.as_uuid()) else { return Ok(Missing::Claim) };
        let chassis = self
            .select(&southbound, "Southbound", Op::select("Chassis", chassis, &["name", "hostname"]))
            .await?;
        let text = |column| chassis.rows.first().and_then(|r| r.get(column)).and_then(|d| d.as_str());
        match (text("name"), text("hostname")) {
            (Some(name), _) if name == self.chassis => Ok(Missing::Flows),
            (Some(name), Some(host)) if !host.is_empty() => Ok(Missing::BoundTo(format!("{name} ({host})"))),
            (name, _) => Ok(Missing::BoundTo(name.unwrap_or("unknown").to_owned())),
        }
    }

    async fn select(&self, (client, _): &(Client, Notices), name: &str, op: Op) -> Result<OpResult, String> {
        let deadline = tokio::time::Instant::now() + self.patience;
        let mut pause = Duration::from_millis(20);
        loop {
            match tokio::time::timeout_at(deadline, client.transact(vec![op.clone()])).await {
                Ok(Ok(results)) => return Ok(results.into_iter().next().unwrap_or_default()),
                // The connection is being made.
                Ok(Err(e)) if e.is_transient() && tokio::time::Instant::now() + pause < deadline => {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                Ok(Err(e)) => return Err(format!("{name} database: {e}")),
                Err(_) => return Err(format!("{name} database: no answer in {:?}", self.patience)),
            }
        }
    }
}

fn connect(options: &Options) -> (Client, Notices) {
    ovsdb::connect(options.clone().monitor(MonitorSpec::none()))
}

impl Diagnose for OvnDiagnosis {
    fn missing<'a>(&'a self, logical_port: &'a str) -> Pin<Box<dyn Future<Output = Missing> + Send + 'a>> {
        Box::pin(async move { self.ask(logical_port).await.unwrap_or_else(Missing::Unknown) })
    }
}
