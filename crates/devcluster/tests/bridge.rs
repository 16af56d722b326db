//! The node's own bridge: made out of a plain network card and undone, with the program killed at every step of either;
//! and with gateways switched on, off and to another mode, after which nothing of the earlier one is left.

#[path = "common/lab.rs"]
#[allow(dead_code, reason = "each test file uses a part")]
mod lab;

use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use devcluster::{
    AgentOptions, ApiChoice, Cluster, Exit, Families, GATEWAY, Node, Program, Stack, mk_namespace,
};
use lab::{NAMESPACE, PATIENCE, apply_server, eventually, probe, ready, run, without_bridge};

const SIGKILL: i32 = 9;
/// More steps than any take-over of such a card has.
const MOST: u32 = 60;

/// A node with a plain card whose agent was started once and cleaned up.
struct Bench {
    stack: Stack,
    node: Arc<Node>,
    families: Families,
    /// The card before anybody came.
    plain: Vec<String>,
}

impl Bench {
    async fn start() -> Result<Bench> {
        let families = Families::Dual;
        let cluster = Cluster::builder().nodes(1).families(families).start().await?;
        let node = cluster.node(1).clone();
        without_bridge(&node, families).await?;
        node.ip_batch(
            "address change 172.18.0.1/24 dev eth0 valid_lft 4000 preferred_lft 3000\n\
             route add 198.51.100.0/24 nexthop via 172.18.0.250 dev eth0 nexthop via 172.18.0.251 dev eth0\n",
        )
        .await?;
        let plain = network_of(&node, "eth0").await?;
        let mut stack = Stack::without_runners(cluster, ApiChoice::Any).await?;
        let options = AgentOptions { gateway_interface: String::new(), ..AgentOptions::default() };
        stack.start_agents(options).await?;
        ready(&node).await?;
        let mut bench = Bench { stack, node, families, plain };
        bench.stop().await?;
        bench.clean_up(None).await?;
        Ok(bench)
    }

    async fn stop(&mut self) -> Result<()> {
        let name = self.node.name().to_owned();
        let process = self.stack.agents()?.nodes.get(&name).context("no process")?;
        process.terminate().await.map(drop)
    }

    /// Starts the agent so that it dies instead of doing a step; false if it has no such step and is ready.
    async fn dies_at(&mut self, step: u32) -> Result<bool> {
        let program = with_fault(self.stack.agents()?.node_program(&self.node)?, "takeover", step);
        let process = self.node.spawn(program).await?;
        let end = tokio::select! {
            end = process.wait() => end?,
            up = ready(&self.node) => {
                up?;
                process.terminate().await?;
                return Ok(false);
            }
        };
        killed(&end)
    }

    /// The agent runs from start until it is ready, and is stopped.
    async fn runs(&mut self) -> Result<()> {
        let node = self.node.clone();
        self.stack.agents()?.start_node(&node).await?;
        ready(&node).await
    }

    /// `--cleanup-node`, dying instead of doing a step if one is given; false if it came to its end.
    async fn clean_up(&mut self, step: Option<u32>) -> Result<bool> {
        let mut program = self.stack.agents()?.cleanup_program(&self.node)?;
        if let Some(step) = step {
            program = with_fault(program, "undo", step);
        }
        let end = self.node.spawn(program).await?.wait().await?;
        if end.code == Some(0) {
            return Ok(false);
        }
        killed(&end)
    }

    async fn is_reachable(&self) -> Result<()> {
        for address in self.node.addresses() {
            let address = address.to_string();
            let what = format!("the outside reaches {address}");
            let underlay = self.stack.cluster().underlay();
            eventually(&what, async || underlay.exec(&["ping", "-c1", "-W1", &address]).await).await?;
        }
        Ok(())
    }

    /// Everything is on the bridge, once, and nothing on the card.
    async fn has_moved(&self) -> Result<()> {
        let (bridge, card) = (network_of(&self.node, "breth0").await?, network_of(&self.node, "eth0").await?);
        ensure!(bridge == self.plain, "on the bridge {bridge:#?} and not {:#?}", self.plain);
        ensure!(card.is_empty(), "left on the card: {card:#?}");
        let ids = self.node.ovn(&["ovs-vsctl", "get", "Bridge", "breth0", "external_ids"]).await?;
        ensure!(!ids.contains("takeover"), "{ids}");
        self.is_reachable().await
    }

    /// Everything is on the card, once, and nothing of ours is left.
    async fn is_plain(&self) -> Result<()> {
        let card = network_of(&self.node, "eth0").await?;
        ensure!(card == self.plain, "on the card {card:#?} and not {:#?}", self.plain);
        let bridges = self.node.ovn(&["ovs-vsctl", "list-br"]).await?;
        ensure!(bridges.trim() == "br-int", "{bridges}");
        ensure!(self.families.v4() && self.families.v6());
        eventually("the bridge's interface goes", async || {
            let links = self.node.exec(&["ip", "-br", "link"]).await?;
            ensure!(!links.contains("breth0") && !links.contains("ovn-k8s-mp0"), "{links}");
            Ok(())
        })
        .await?;
        let tables = self.node.exec(&["nft", "list", "tables"]).await?;
        ensure!(!tables.contains("ovn-kubernetes"), "{tables}");
        let rules = self.node.exec(&["ip", "rule"]).await?;
        ensure!(!rules.contains("fwmark"), "{rules}");
        self.is_reachable().await
    }
}

fn with_fault(mut program: Program, job: &str, step: u32) -> Program {
    program.env.push(("OVNKUBE_KILL_BEFORE".to_owned(), format!("{job}:{step}")));
    program
}

fn killed(end: &Exit) -> Result<bool> {
    match end.signal {
        Some(SIGKILL) => Ok(true),
        _ => bail!("the program was to be killed, and ended by itself: {end:?}"),
    }
}

/// Usable addresses and what leads through an interface, as `ip` shows it but for the seconds left.
async fn network_of(node: &Node, interface: &str) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for (command, numbered) in [
        ("ip -o -4 addr show", true),
        ("ip -o -6 addr show", true),
        ("ip -o -4 route show", false),
        ("ip -o -6 route show", false),
    ] {
        let argv: Vec<&str> = command.split(' ').collect();
        let text = node.exec(&argv).await?;
        let through = |line: &&str| line.split_whitespace().any(|word| word == interface);
        for line in text.lines().filter(through) {
            let passing = ["fe80:", "ff00:", "169.254.169.", "fd69:"];
            if passing.iter().any(|word| line.contains(word)) {
                continue;
            }
            // The broadcast address follows from the prefix, and whoever added the first may have left it out.
            let line = line.replace('\\', " ").replace(" brd 172.18.0.255", "");
            let words = line.split_whitespace().skip(usize::from(numbered));
            let words = words.filter(|word| *word != "linkdown").map(|word| match word {
                word if word == interface => "DEV",
                word if word.ends_with("sec") => "limited",
                word => word,
            });
            lines.push(words.collect::<Vec<_>>().join(" "));
        }
    }
    lines.sort();
    Ok(lines)
}

#[test]
fn killed_at_any_step_of_the_take_over_or_of_its_undoing_the_next_start_finishes() -> Result<()> {
    run(async {
        let mut bench = Bench::start().await?;
        bench.is_plain().await?;
        let (mut takeovers, mut undoings) = (0, 0);
        let (mut more_takeovers, mut more_undoings) = (true, true);
        for step in 1..=MOST {
            if more_takeovers {
                more_takeovers = bench.dies_at(step).await?;
                takeovers += u32::from(more_takeovers);
                bench.is_reachable().await.with_context(|| format!("killed before step {step}"))?;
            }
            bench.runs().await?;
            bench.has_moved().await.with_context(|| format!("after a death before step {step}"))?;
            bench.stop().await?;
            if more_undoings {
                more_undoings = bench.clean_up(Some(step)).await?;
                undoings += u32::from(more_undoings);
                bench.is_reachable().await.with_context(|| format!("undoing killed before step {step}"))?;
                if more_undoings && step % 2 == 0 {
                    bench.runs().await?;
                    bench
                        .has_moved()
                        .await
                        .with_context(|| format!("started after undoing to step {step}"))?;
                    bench.stop().await?;
                }
            }
            bench.clean_up(None).await?;
            bench.is_plain().await.with_context(|| format!("after an undoing killed before step {step}"))?;
            if !more_takeovers && !more_undoings {
                ensure!(takeovers > 10 && undoings > 5, "{takeovers} and {undoings} steps");
                return bench.stack.stop().await;
            }
        }
        bail!("there is no end to the steps")
    })
}

/// What can be configured about the way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Setting {
    Shared,
    Local,
    Off,
    OtherMasquerade,
}

impl Setting {
    fn options(self) -> AgentOptions {
        let mode = match self {
            Setting::Local => "local",
            Setting::Off => "",
            Setting::Shared | Setting::OtherMasquerade => "shared",
        };
        let ranges =
            ["--gateway-v4-masquerade-subnet=169.254.64.0/20", "--gateway-v6-masquerade-subnet=fd70::/112"];
        let extra = ranges.iter().filter(|_| self == Setting::OtherMasquerade).map(ToString::to_string);
        let mut options =
            AgentOptions { gateway_mode: mode.to_owned(), extra: extra.collect(), ..AgentOptions::default() };
        if self == Setting::Off {
            // Refused where there is no gateway.
            options.gateway_interface.clear();
        }
        options
    }
}

/// All that a setting leaves on a node: Northbound rows, flows, firewall, addresses, routes, rules, neighbours, mappings.
async fn traces(node: &Node) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for row in lab::northbound(node).await? {
        // What OVN counts and notes down itself.
        let noted =
            ["nb_cfg", "nb_cfg_timestamp", "sb_cfg", "sb_cfg_timestamp", "hv_cfg", "hv_cfg_timestamp", "up"];
        let columns = row.columns().filter(|(column, _)| !noted.contains(&column.name.as_ref()));
        let texts: Vec<String> =
            columns.map(|(column, value)| format!("{}={value:?}", column.name)).collect();
        if row.table() != "NB_Global" {
            all.push(format!("{} {} {}", row.table(), row.uuid(), texts.join(" ")));
        }
    }
    let dump = ["ovs-ofctl", "-O", "OpenFlow13", "--no-stats", "--names", "--sort", "dump-flows", "breth0"];
    let firewall = ["nft", "list", "table", "inet", "ovn-kubernetes"];
    let mapping = ["ovs-vsctl", "get", "Open_vSwitch", ".", "external_ids:ovn-bridge-mappings"];
    let mut texts = vec![node.ovn(&dump).await?, node.exec(&firewall).await?];
    texts.push(node.ovn(&mapping).await.unwrap_or_else(|_| "no mapping".to_owned()));
    for command in [
        "ip -o addr show",
        "ip route show table all",
        "ip -6 route show table all",
        "ip rule",
        "ip -6 rule",
        "ip neigh show nud permanent",
        "ip -6 neigh show nud permanent",
    ] {
        texts.push(node.exec(&command.split(' ').collect::<Vec<_>>()).await?);
    }
    for line in texts.iter().flat_map(|text| text.lines()) {
        // Interfaces of the switch itself come and go; what the kernel numbers has other numbers.
        let passing = ["ovs-netdev", "genev_sys", "linkdown", "multicast ff00", "ff02::", "fe80:"];
        if !passing.iter().any(|word| line.contains(word)) {
            let words = line.split_whitespace();
            all.push(words.skip_while(|word| word.ends_with(':')).collect::<Vec<_>>().join(" "));
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

async fn node_with(setting: Setting) -> Result<Stack> {
    let cluster = Cluster::builder().nodes(1).families(Families::Dual).start().await?;
    let mut stack = Stack::without_agents(cluster, ApiChoice::Any).await?;
    stack.start_agents(setting.options()).await?;
    ready(stack.cluster().node(1)).await?;
    Ok(stack)
}

#[test]
fn nothing_of_an_earlier_setting_stays_after_a_switch() -> Result<()> {
    run(async {
        let mut fresh = std::collections::BTreeMap::new();
        for setting in [Setting::Local, Setting::Off, Setting::OtherMasquerade, Setting::Shared] {
            let stack = node_with(setting).await?;
            fresh.insert(setting, settled(stack.cluster().node(1)).await?);
            stack.stop().await?;
        }
        let mut stack = node_with(Setting::Shared).await?;
        let node = stack.cluster().node(1).clone();
        let switches = [
            Setting::Local,
            Setting::Shared,
            Setting::Off,
            Setting::Local,
            Setting::OtherMasquerade,
            Setting::Off,
            Setting::OtherMasquerade,
            Setting::Local,
            Setting::Off,
            Setting::Shared,
        ];
        for setting in switches {
            stack.restart_agents(setting.options()).await?;
            ready(&node).await?;
            let wanted = &fresh[&setting];
            eventually(&format!("{setting:?} as on a new node"), async || {
                let now = traces(&node).await?;
                let more: Vec<_> = now.iter().filter(|line| !wanted.contains(line)).collect();
                let missing: Vec<_> = wanted.iter().filter(|line| !now.contains(line)).collect();
                ensure!(more.is_empty() && missing.is_empty(), "left {more:#?}, missing {missing:#?}");
                Ok(())
            })
            .await?;
        }
        stack.apply(&mk_namespace(NAMESPACE)).await?;
        apply_server(&mut stack, "late", "node1").await?;
        let pod = stack.running(NAMESPACE, "late", PATIENCE).await?;
        let serve = [&*probe()?, "serve"].map(str::to_owned).to_vec();
        let _server = stack.cluster().underlay().spawn(Program { argv: serve, ..Program::default() }).await?;
        for (address, _) in Families::Dual.on_underlay(GATEWAY) {
            let argv = [&*probe()?, "tcp", &lab::at(address), "--timeout-ms", "1000"].map(str::to_owned);
            eventually("the way to the outside", async || pod.exec(&argv).await).await?;
        }
        stack.stop().await
    })
}

/// The traces once they do not change any more.
async fn settled(node: &Node) -> Result<Vec<String>> {
    node.ovn(&["ovn-nbctl", "--timeout=20", "--wait=hv", "sync"]).await?;
    eventually("the node to come to rest", async || {
        let (first, second) = (traces(node).await?, traces(node).await?);
        ensure!(first == second);
        Ok(second)
    })
    .await
}
