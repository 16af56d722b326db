//! The metrics we promise.

use std::time::{Duration, SystemTime};
use telemetry::{
    BuildInfo, Metrics, Roles,
    metrics::{Kind, PodStage, ResourceEvent},
};

const BUILD: BuildInfo =
    BuildInfo { version: "1", revision: "r", branch: "b", build_user: "u", build_date: "d", compiler: "c" };
const ALL: Roles = Roles { cluster_manager: true, controller: true, node: true };

fn metrics() -> Metrics {
    Metrics::new(ALL, BUILD, Vec::new())
}

/// Write the page anew by running this test with UPDATE=1.
#[test]
fn names_are_those_of_the_page() {
    let mut page = String::from(
        "# Metrics\n\nThe families `ovn_*` and `ovs_*` are on `--ovn-metrics-bind-address`, `process_*` on both servers, all \
         others on\n`--metrics-bind-address`, those of a role only where it runs.\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n",
    );
    let metrics = metrics();
    let mut seen = std::collections::BTreeMap::new();
    for family in metrics.declared() {
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        seen.insert(
            &family.name,
            format!("| `{}` | {kind} | {} | {} |\n", family.name, family.labels.join(", "), family.help),
        );
    }
    page.extend(seen.into_values());
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(committed == page, "docs/metrics.md is out of date; run this test with UPDATE=1");
}

#[test]
fn a_role_serves_only_its_own() {
    let roles = Roles { cluster_manager: true, ..Roles::default() };
    let metrics = Metrics::new(roles, BUILD, Vec::new());
    // The handles of other roles work and go nowhere.
    metrics.controller.resource_handled("pods", ResourceEvent::Add, Duration::ZERO);
    let text = metrics.render();
    assert!(text.contains("ovnkube_clustermanager_leader 0"));
    assert!(
        !text.contains("ovnkube_controller_")
            && !text.contains("ovnkube_node_")
            && !text.contains("pod_stage")
    );
    assert!(text.contains(
        "ovnkube_clustermanager_build_info{branch=\"b\",build_date=\"d\",build_user=\"u\",goversion=\"c\",revision=\"r\",version=\"1\"} 1"
    ));
}

#[test]
fn old_pods_are_not_counted_again_after_a_restart() {
    let metrics = metrics();
    let now = SystemTime::now();
    assert!(!metrics.controller.pod_created(now - Duration::from_secs(3600), now));
    assert_eq!(metrics.controller.pods_created(), 0);
    assert!(metrics.controller.pod_created(now, now + Duration::from_millis(30)));
    // A clock that is ahead of ours must not make a negative duration.
    assert!(metrics.controller.pod_created(now + Duration::from_secs(5), now));
    assert_eq!(metrics.controller.pods_created(), 2);
}

#[test]
fn series_are_bounded_and_those_of_deleted_objects_go() {
    let metrics = metrics();
    let series = || metrics.render().lines().filter(|l| !l.starts_with('#')).count();
    metrics.node.cni_request("ADD", false, Duration::from_millis(20));
    metrics.node.cni_request("other", true, Duration::from_millis(20));
    metrics.controller.resource_handled("pods", ResourceEvent::Add, Duration::from_millis(1));
    let before = series();
    for i in 0..500 {
        metrics.node.cni_request(&format!("WEIRD{i}"), true, Duration::from_millis(20));
        metrics.controller.resource_handled("pods", ResourceEvent::Add, Duration::from_millis(1));
        PodStage::ALL.into_iter().for_each(|s| metrics.pod_stages.observe(s, Duration::from_millis(3)));
    }
    assert_eq!(series(), before);
    assert_eq!(metrics.pod_stages.count(PodStage::Installed), 500);
    assert!(
        metrics
            .render()
            .contains("ovnkube_controller_resource_update_total{event=\"add\",name=\"pods\"} 501")
    );

    metrics.cluster_manager.host_subnets("default", false, 256.0, 2.0);
    assert!(
        metrics
            .render()
            .contains("ovnkube_clustermanager_allocated_v4_host_subnets{network_name=\"default\"} 2")
    );
    metrics.cluster_manager.forget_network("default");
    assert_eq!(series(), before);
}

#[test]
fn the_process_measures_itself() {
    let metrics = metrics();
    let value = |name: &str| -> f64 {
        let text = metrics.render();
        text.lines().find_map(|l| l.strip_prefix(&format!("{name} "))).unwrap().parse().unwrap()
    };
    assert!(value("process_resident_memory_bytes") > 100_000.0);
    assert!(value("process_open_fds") >= 3.0 && value("process_max_fds") >= value("process_open_fds"));
    let uptime = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
        - value("process_start_time_seconds");
    assert!((-1.0..3600.0).contains(&uptime), "{uptime}");
    // Each scrape adds only what was used since the one before.
    let (first, second) = (value("process_cpu_seconds_total"), value("process_cpu_seconds_total"));
    assert!(second >= first && second < first + 5.0);
}

#[test]
fn versions_replace_each_other() {
    let ovn = metrics();
    ovn.ovn.set_ovs("3.5");
    ovn.ovn.set_ovs("3.6");
    let text = ovn.render_ovn();
    assert!(text.contains("ovs_build_info{version=\"3.6\"} 1") && !text.contains("3.5"));
}

#[test]
fn log_files_have_a_size_while_they_exist() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.log");
    std::fs::write(&path, "12345").unwrap();
    let metrics = Metrics::new(ALL, BUILD, vec![path.clone()]);
    assert!(metrics.render().contains("ovnkube_node_logfile_size_bytes{logfile_name=\"a.log\"} 5"));
    std::fs::remove_file(path).unwrap();
    assert!(!metrics.render().contains("a.log"));
}
