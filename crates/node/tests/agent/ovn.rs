//! A zone of its own on the machine: Northbound and Southbound databases, northd and ovn-controller.

use std::process::{Child, Command, Stdio};

use crate::machine::Machine;

/// The daemons; dropping them stops them.
pub(crate) struct Ovn {
    daemons: Vec<Child>,
}

const SCHEMAS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../ovn/schema");

impl Ovn {
    /// Starts everything but ovn-controller.
    pub(crate) fn start(machine: &Machine) -> Ovn {
        let mut ovn = Ovn { daemons: Vec::new() };
        for (name, socket) in [("nb", "ovnnb_db"), ("sb", "ovnsb_db")] {
            let (file, socket) =
                (machine.path(&format!("{name}.db")), machine.path(&format!("{socket}.sock")));
            let schema = format!("{SCHEMAS}/ovn-{name}.ovsschema");
            machine.run("ovsdb-tool", &["create", &file.display().to_string(), &schema]);
            ovn.spawn(
                machine,
                "ovsdb-server",
                &[file.display().to_string(), format!("--remote=punix:{}", socket.display())],
            );
        }
        machine.run("ovn-nbctl", &["--timeout=20", &Ovn::nb(machine), "init"]);
        machine.run("ovn-sbctl", &["--timeout=20", &Ovn::sb(machine), "init"]);
        let remotes = ["nb", "sb"]
            .map(|name| format!("--ovn{name}-db={}", machine.remote(&format!("ovn{name}_db.sock"))));
        ovn.spawn(machine, "ovn-northd", &remotes);
        ovn
    }

    /// Starts ovn-controller.
    pub(crate) fn start_controller(&mut self, machine: &Machine) {
        self.spawn(machine, "ovn-controller", &[machine.remote("db.sock")]);
    }

    /// Runs ovn-nbctl; arguments are separated by spaces.
    pub(crate) fn nbctl(machine: &Machine, args: &str) -> String {
        let nb = Ovn::nb(machine);
        machine.run(
            "ovn-nbctl",
            &std::iter::once(nb.as_str()).chain(args.split_whitespace()).collect::<Vec<_>>(),
        )
    }

    /// Runs ovn-sbctl; arguments are separated by spaces.
    pub(crate) fn sbctl(machine: &Machine, args: &str) -> String {
        let sb = Ovn::sb(machine);
        machine.run(
            "ovn-sbctl",
            &std::iter::once(sb.as_str()).chain(args.split_whitespace()).collect::<Vec<_>>(),
        )
    }

    fn nb(machine: &Machine) -> String {
        format!("--db={}", machine.remote("ovnnb_db.sock"))
    }

    fn sb(machine: &Machine) -> String {
        format!("--db={}", machine.remote("ovnsb_db.sock"))
    }

    fn spawn(&mut self, machine: &Machine, program: &str, args: &[String]) {
        let control = machine.path(&format!("{program}.{}.ctl", self.daemons.len()));
        let mut command: Command = machine.command(program);
        command.args(args).arg(format!("--unixctl={}", control.display())).arg("-vconsole:off");
        self.daemons.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }
}

impl Drop for Ovn {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
