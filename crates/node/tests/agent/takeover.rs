//! A plain network card becomes the uplink of a bridge: with everything on it, after a crash anywhere, and back again.

use host::Handle;
use node::Settings;
use node::gateway::takeover::{self, Next, View};
use ovsdb::{Options, Replica};

use crate::api::Api;
use crate::machine::{Machine, eventually};
use crate::{Agent, on, ready_node, registered};

const CARD: &str = "eth0";

/// Does so many steps of the move and no more, as an agent that is killed then.
async fn begin(machine: &Machine, steps: usize) -> usize {
    let endpoint = machine.remote("db.sock").parse().unwrap();
    let replica =
        Replica::connect(Options::new([endpoint], "Open_vSwitch").monitor(node::ovs::monitor_spec()));
    replica.ready().await;
    let handle = Handle::open().unwrap();
    let look = || takeover::observe(&replica, &handle, CARD).unwrap().unwrap();
    let mut done = 0;
    loop {
        let view: View = look();
        let next = match takeover::next(&view) {
            Next::Do(next) => next,
            Next::Done => return done,
            Next::Wait(_) => {
                eventually("the switch", || !matches!(takeover::next(&look()), Next::Wait(_))).await;
                continue;
            }
        };
        for step in next {
            if done == steps {
                return done;
            }
            takeover::apply(&replica, &handle, &view, &step).await.unwrap();
            done += 1;
            let anywhere = [machine.network_of(CARD), bridge(machine)].concat().join("\n");
            for needed in ["172.18.0.1/24", "default via 172.18.0.254", "default via fd00:172:18::254"] {
                assert!(anywhere.contains(needed), "{needed} is missing after {step:?}: {anywhere}");
            }
        }
    }
}

fn bridge(machine: &Machine) -> Vec<String> {
    let there = machine.ip("-br link").contains("breth0");
    if there { machine.network_of("breth0") } else { Vec::new() }
}

fn settings(machine: &Machine) -> Settings {
    let mut settings = machine.settings();
    settings.gateway.interface = CARD.to_owned();
    settings
}

async fn start(machine: &Machine, api: &Api) -> Agent {
    let agent = Agent::start(settings(machine), api);
    agent.awaiting(|awaited| matches!(awaited, node::Awaited::Installed { .. })).await;
    machine.install_port();
    agent.ready().await;
    agent
}

#[test]
fn everything_moves_to_the_bridge_once_and_back_when_cleaned_up() {
    let machine = Machine::start().with_plain_card();
    let before = machine.network_of(CARD);
    on(async {
        let api = registered();
        let agent = start(&machine, &api).await;
        assert_eq!(machine.network_of("breth0"), before);
        assert_eq!(machine.network_of(CARD), [""; 0]);
        assert_eq!(machine.vsctl("port-to-br eth0"), "breth0");
        assert!(machine.ip("-br link show breth0").contains("02:42:ac:12:00:01"));
        let ids = machine.vsctl("get Bridge breth0 external_ids");
        assert_eq!(ids, "{bridge-id=breth0, bridge-uplink=eth0}");
        assert!(machine.flows().contains("0xdeff105"));
        assert!(api.annotation("k8s.ovn.org/l3-gateway-config").unwrap().contains("breth0_node1"));
        agent.stop().await;

        let (host, transactions) = (machine.monitor_host(), machine.transactions());
        let agent = Agent::start(settings(&machine), &api);
        agent.ready().await;
        assert_eq!(host.stop(), "", "a second start");
        assert_eq!(machine.transactions(), transactions);
        agent.stop().await;

        node::cleanup(&settings(&machine)).await.unwrap();
        assert_eq!(machine.network_of(CARD), before);
        let gone = |name: &str| !machine.ip("-br link").contains(name);
        eventually("the interfaces are gone", || gone("breth0") && gone("ovn-k8s-mp0")).await;
        assert!(!machine.vsctl("list-br").contains("breth0"));
        node::cleanup(&settings(&machine)).await.unwrap();
        assert_eq!(machine.network_of(CARD), before, "a second clean-up");
    });
}

#[test]
fn an_agent_killed_at_any_step_leaves_a_node_that_the_next_one_finishes() {
    let mut crash = 0;
    loop {
        let ended = std::thread::spawn(move || {
            let machine = Machine::start().with_plain_card();
            let before = machine.network_of(CARD);
            let mut ended = false;
            on(async {
                ended = begin(&machine, crash).await < crash;
                let api = registered();
                let agent = start(&machine, &api).await;
                assert_eq!(machine.network_of("breth0"), before, "killed after {crash} steps");
                assert_eq!(machine.network_of(CARD), [""; 0], "killed after {crash} steps");
                assert!(!machine.vsctl("get Bridge breth0 external_ids").contains("takeover"));
                agent.stop().await;
            });
            ended
        });
        if ended.join().unwrap() {
            break;
        }
        crash += 1;
        assert!(crash < 40, "the move does not end");
    }
    assert!(crash > 10, "only {crash} steps");
}

#[test]
fn the_default_route_names_the_card() {
    let machine = Machine::start().with_plain_card();
    on(async {
        let mut found = settings(&machine);
        found.gateway.interface = String::new();
        let api = registered();
        let agent = Agent::start(found, &api);
        eventually("the bridge", || {
            machine.vsctl("list-br").contains("breth0") && machine.network_of(CARD).is_empty()
        })
        .await;
        agent.stop().await;
        let agent = ready_node(&machine, &api).await;
        agent.stop().await;
    });
}
