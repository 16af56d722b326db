//! Metrics: the reference's names for what exists, and one family of ours for the stages of a pod's way.

mod cluster_manager;
mod controller;
mod handle;
mod node;
mod ovn;
mod pod_stage;
mod process;
mod registry;
mod service;

pub use cluster_manager::ClusterManagerMetrics;
pub use controller::{ControllerMetrics, PodSteps, ResourceEvent};
pub use handle::{Counter, Gauge, Histogram};
pub use node::NodeMetrics;
pub use ovn::OvnMetrics;
pub use pod_stage::{PodStage, PodStages};
pub use registry::{Declared, Kind};
pub use service::ServiceMetrics;

use registry::Families;
use std::{path::PathBuf, sync::Arc};

/// What this process is; families of other roles are not served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Roles {
    /// The cluster manager.
    pub cluster_manager: bool,
    /// The network controller.
    pub controller: bool,
    /// The node agent.
    pub node: bool,
}

/// Labels of the build_info families.
#[derive(Debug, Clone, Copy)]
pub struct BuildInfo {
    /// Release.
    pub version: &'static str,
    /// Commit.
    pub revision: &'static str,
    /// Branch.
    pub branch: &'static str,
    /// Who built it.
    pub build_user: &'static str,
    /// When.
    pub build_date: &'static str,
    /// Compiler; the label is called goversion as dashboards expect.
    pub compiler: &'static str,
}

/// Handles of all metrics; clones are cheap and share the values.
#[derive(Clone)]
pub struct Metrics {
    /// `ovnkube_clustermanager_*`
    pub cluster_manager: ClusterManagerMetrics,
    /// `ovnkube_controller_*`
    pub controller: ControllerMetrics,
    /// `ovnkube_node_*`
    pub node: NodeMetrics,
    /// `ovnkube_pod_stage_duration_seconds`
    pub pod_stages: PodStages,
    /// What Services take to be programmed.
    pub services: ServiceMetrics,
    /// `ovn_*` and `ovs_*`, on the second server.
    pub ovn: OvnMetrics,
    main: Arc<Families>,
    second: Arc<Families>,
}

impl Metrics {
    /// Declares everything for these roles. `log_files` are those whose size is reported.
    pub fn new(roles: Roles, build: BuildInfo, log_files: Vec<PathBuf>) -> Self {
        let mut main = Families::default();
        let mut second = Families::default();
        let cluster_manager = ClusterManagerMetrics::declare(&mut main.only(roles.cluster_manager), build);
        let controller = ControllerMetrics::declare(&mut main.only(roles.controller), build, &log_files);
        let node = NodeMetrics::declare(&mut main.only(roles.node), build, &log_files);
        let pod_stages = PodStages::declare(&mut main.only(roles.controller || roles.node));
        let services = ServiceMetrics::declare(&mut main.only(roles.controller));
        process::declare(&mut main.only(true));
        let ovn = OvnMetrics::declare(&mut second.only(true));
        process::declare(&mut second.only(true));
        Self {
            cluster_manager,
            controller,
            node,
            pod_stages,
            services,
            ovn,
            main: Arc::new(main),
            second: Arc::new(second),
        }
    }

    /// Everything the main server serves, in Prometheus' text format.
    pub fn render(&self) -> String {
        self.main.render()
    }

    /// Everything the second server serves.
    pub fn render_ovn(&self) -> String {
        self.second.render()
    }

    /// All families of the main and then of the second server, whether they have series yet or not.
    pub fn declared(&self) -> impl Iterator<Item = &Declared> {
        self.main.declared().iter().chain(self.second.declared())
    }
}
