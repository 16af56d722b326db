//! How long the first load of a Northbound database takes and how much memory it needs:
//!
//! ```text
//! cargo xtask bench ovsdb [-- ports]
//! ```
//!
//! Starts a real ovsdb-server (found in the folder `OVN_BIN_DIR` or on the path), fills it, and loads it in a
//! fresh process as the controller does.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use ovsdb::{Datum, MonitorSpec, Mutation, Name, Op, Options, Replica, Uuid};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> ExitCode {
    // Cargo tells every bench that it is one.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let outcome = match arguments.as_slice() {
        [mode, socket] if mode == "measure" => block_on(measure(Path::new(socket))),
        [] => block_on(bench(100_000)),
        [ports] => match ports.parse() {
            Ok(ports) => block_on(bench(ports)),
            Err(_) => Err(format!("{ports} is not a number of ports").into()),
        },
        _ => Err("usage: ovsdb [ports]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("load: {error}");
            ExitCode::FAILURE
        }
    }
}

fn block_on(work: impl Future<Output = Outcome<()>>) -> Outcome<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("OVN_BIN_DIR").map(PathBuf::from).unwrap_or_default();
    folder.join(name)
}

async fn bench(ports: usize) -> Outcome<()> {
    let dir = tempfile::TempDir::new()?;
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ovn/schema/ovn-nb.ovsschema");
    let (database, socket) = (dir.path().join("db"), dir.path().join("sock"));
    let created = Command::new(program("ovsdb-tool")).arg("create").arg(&database).arg(schema).status()?;
    if !created.success() {
        return Err("ovsdb-tool cannot create the database".into());
    }
    let server = Command::new(program("ovsdb-server"))
        .arg(&database)
        .arg(format!("--remote=punix:{}", socket.display()))
        .arg(format!("--unixctl={}", dir.path().join("ctl").display()))
        .args(["--no-chdir", "-vconsole:off"])
        .stdin(Stdio::null())
        .spawn()?;
    let _server = Server(server);
    fill(&socket, ports).await?;
    let measured = Command::new(std::env::current_exe()?).arg("measure").arg(&socket).status()?;
    if measured.success() { Ok(()) } else { Err("the measuring process failed".into()) }
}

async fn fill(socket: &Path, ports: usize) -> Outcome<()> {
    let writer = Replica::connect(Options::unix(socket, "OVN_Northbound"));
    tokio::time::timeout(Duration::from_secs(30), writer.ready()).await?;
    let started = Instant::now();
    for first in (0..ports).step_by(500) {
        let mut ops = Vec::new();
        let switch = identity("switch", first);
        let name = format!("node-{}", first / 500);
        ops.push(Op::insert("Logical_Switch", switch, row([("name", name.as_str().into())])));
        let numbers = first..(first + 500).min(ports);
        ops.extend(numbers.clone().map(|n| port(n, &name)));
        let members = numbers.map(|n| identity("port", n)).collect::<Datum>();
        ops.push(Op::mutate("Logical_Switch", switch, vec![Mutation::insert("ports", members)]));
        writer.transact(ops).await?;
    }
    println!("filled {ports} Logical_Switch_Port rows in {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

fn row<const N: usize>(columns: [(&'static str, Datum); N]) -> Vec<(Name, Datum)> {
    columns.into_iter().map(|(name, value)| (Name::Borrowed(name), value)).collect()
}

/// Spread like those of the controller: the server's hash tables look at the first bytes alone.
fn identity(kind: &str, n: usize) -> Uuid {
    Uuid::v5(&Uuid::NIL, format!("{kind}-{n}").as_bytes())
}

fn port(n: usize, node: &str) -> Op {
    let (a, b, c) = (n >> 16 & 0xff, n >> 8 & 0xff, n & 0xff);
    let address = format!("0a:58:0a:{a:02x}:{b:02x}:{c:02x} 10.{a}.{b}.{c}");
    let namespace = format!("namespace-{}", n % 300);
    let columns = row([
        ("name", format!("{namespace}_deployment-{:x}-{n}", n.wrapping_mul(2_654_435_761)).into()),
        ("addresses", address.as_str().into()),
        ("port_security", address.into()),
        ("external_ids", Datum::map([("namespace", namespace.as_str()), ("pod", "true")])),
        (
            "options",
            Datum::map([
                ("iface-id-ver", identity("pod", n).to_string().as_str()),
                ("requested-chassis", node),
            ]),
        ),
    ]);
    Op::insert("Logical_Switch_Port", identity("port", n), columns)
}

async fn measure(socket: &Path) -> Outcome<()> {
    let before = memory("VmRSS")?;
    let started = Instant::now();
    let replica = Replica::connect(Options::unix(socket, "OVN_Northbound").monitor(MonitorSpec::all()));
    tokio::time::timeout(Duration::from_secs(300), replica.ready()).await?;
    let time = started.elapsed();
    let rows: usize = replica.read(|cache| cache.tables().map(|table| table.len()).sum());
    let (peak, after) = (memory("VmHWM")?, memory("VmRSS")?);
    println!("first load of {rows} rows: {:.2} s", time.as_secs_f64());
    println!("CPU of this process: {:.2} s", cpu()?);
    println!(
        "memory: {:.1} MB before, {:.1} MB at the peak, {:.1} MB after; {} bytes a row",
        before as f64 / 1024.0,
        peak as f64 / 1024.0,
        after as f64 / 1024.0,
        (after.saturating_sub(before) * 1024).checked_div(rows as u64).unwrap_or(0)
    );
    Ok(())
}

/// A line of `/proc/self/status`, in KiB.
fn memory(key: &str) -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    Ok(line.and_then(|rest| rest.split_whitespace().next()).ok_or("no such line")?.parse()?)
}

/// User and system time so far, in seconds; the kernel counts in hundredths.
fn cpu() -> Outcome<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<u64>().ok()).ok_or("no such field");
    Ok((ticks(11)? + ticks(12)?) as f64 / 100.0)
}
