//! Which server answers, whom it sees, and what happens where none does.
//!
//! The client says `who`, the server answers with its name and the client's address: one line each way over TCP and SCTP,
//! one datagram each way over UDP.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    io::{BufRead, BufReader, ErrorKind, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use socket2::{Domain, Protocol, Socket, Type};

/// Number of the protocol.
const SCTP: i32 = 132;

/// A place to ask, as `LABEL=PROTOCOL:ADDRESS:PORT`.
#[derive(Clone)]
struct Target {
    label: String,
    protocol: String,
    address: SocketAddr,
}

/// The server's answer.
struct Answer {
    name: String,
    peer: String,
}

fn parse(text: &str) -> Result<Target> {
    let (label, rest) =
        text.split_once('=').with_context(|| format!("{text}: LABEL=PROTOCOL:ADDRESS:PORT"))?;
    let (protocol, address) =
        rest.split_once(':').with_context(|| format!("{text}: LABEL=PROTOCOL:ADDRESS:PORT"))?;
    let address =
        address.parse().with_context(|| format!("{address} is no ADDRESS:PORT (IPv6 in brackets)"))?;
    Ok(Target { label: label.to_owned(), protocol: protocol.to_owned(), address })
}

/// Asks every target `count` times, each time anew, all targets at once. A line for each:
/// `LABEL names=a,b peers=10.0.0.1 errors=refused:3`.
pub(crate) fn batch(targets: &[&str], count: usize, timeout: Duration) -> Result<String> {
    let targets: Vec<Target> = targets.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    let asking: Vec<_> = targets
        .into_iter()
        .map(|target| {
            thread::Builder::new().stack_size(64 * 1024).spawn(move || {
                let line = ask_often(&target, count, timeout);
                format!("{} {line}", target.label)
            })
        })
        .collect::<Result<_, _>>()?;
    let mut text = String::new();
    for one in asking {
        match one.join() {
            Ok(line) => writeln!(text, "{line}")?,
            Err(_) => bail!("an asking thread panicked"),
        }
    }
    Ok(text.trim_end().to_owned())
}

fn ask_often(target: &Target, count: usize, timeout: Duration) -> String {
    let (mut names, mut peers) = (BTreeSet::new(), BTreeSet::new());
    let mut errors: BTreeMap<&'static str, usize> = BTreeMap::new();
    for _ in 0..count {
        match ask(target, timeout) {
            Ok(answer) => {
                names.insert(answer.name);
                peers.insert(answer.peer);
            }
            Err(error) => *errors.entry(class(&error)).or_default() += 1,
        }
        // Where nothing ever answers, once is enough.
        if names.is_empty() && errors.get("silent").is_some_and(|count| *count >= 2) {
            break;
        }
    }
    let list = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let errors: Vec<String> = errors.iter().map(|(class, count)| format!("{class}:{count}")).collect();
    format!("names={} peers={} errors={}", list(&names), list(&peers), errors.join(","))
}

/// Asks one target again and again, `rate` times a second, until killed. A line for each question: `ok NAME` or
/// `failed CLASS`. Over UDP all questions come from one port.
pub(crate) fn steady(target: &str, rate: usize, timeout: Duration) -> Result<String> {
    let target = parse(&format!("steady={target}"))?;
    let socket = (target.protocol == "udp").then(|| udp(target.address, timeout)).transpose()?;
    let (start, mut asked) = (Instant::now(), 0u32);
    loop {
        let answer = match &socket {
            Some(socket) => ask_on(socket),
            None => ask(&target, timeout),
        };
        match answer {
            Ok(answer) => println!("ok {}", answer.name),
            Err(error) => println!("failed {}", class(&error)),
        }
        asked += 1;
        let next = start + Duration::from_secs(1) * asked / u32::try_from(rate.max(1))?;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn class(error: &anyhow::Error) -> &'static str {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    match kind {
        // The second is what a firewall on the way out says.
        Some(ErrorKind::ConnectionRefused | ErrorKind::PermissionDenied) => "refused",
        Some(ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof) => "reset",
        Some(ErrorKind::TimedOut | ErrorKind::WouldBlock) => "silent",
        Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => "unreachable",
        _ => "other",
    }
}

fn ask(target: &Target, timeout: Duration) -> Result<Answer> {
    match target.protocol.as_str() {
        "udp" => ask_on(&udp(target.address, timeout)?),
        protocol @ ("tcp" | "sctp") => {
            let stream = connect(protocol, target.address, timeout)?;
            (&stream).write_all(b"who\n")?;
            let mut line = String::new();
            if BufReader::new(stream).read_line(&mut line)? == 0 {
                return Err(std::io::Error::from(ErrorKind::UnexpectedEof).into());
            }
            read(&line)
        }
        other => bail!("{other}: tcp, udp or sctp"),
    }
}

fn connect(protocol: &str, address: SocketAddr, timeout: Duration) -> Result<TcpStream> {
    let number = if protocol == "sctp" { Protocol::from(SCTP) } else { Protocol::TCP };
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(number))?;
    socket.connect_timeout(&address.into(), timeout)?;
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    Ok(socket.into())
}

fn udp(address: SocketAddr, timeout: Duration) -> Result<UdpSocket> {
    let any: IpAddr =
        if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_read_timeout(Some(timeout))?;
    Ok(socket)
}

fn ask_on(socket: &UdpSocket) -> Result<Answer> {
    socket.send(b"who\n")?;
    let mut buffer = [0; 512];
    let count = socket.recv(&mut buffer)?;
    read(&String::from_utf8_lossy(buffer.get(..count).unwrap_or_default()))
}

fn read(line: &str) -> Result<Answer> {
    let (name, peer) =
        line.trim().split_once(' ').with_context(|| format!("{line:?} is no answer to who"))?;
    Ok(Answer { name: name.to_owned(), peer: peer.to_owned() })
}

/// The answer of a server that is called `name`.
pub(crate) fn answer(name: &str, peer: SocketAddr) -> String {
    format!("{name} {}\n", peer.ip())
}

/// Answers over SCTP, where the kernel has it.
pub(crate) fn serve_sctp(name: &str, places: &[SocketAddr]) -> Result<()> {
    for place in places {
        let Ok(socket) = Socket::new(Domain::for_address(*place), Type::STREAM, Some(Protocol::from(SCTP)))
        else {
            return Ok(());
        };
        socket.set_reuse_address(true)?;
        if socket.bind(&(*place).into()).is_err() {
            continue;
        }
        socket.listen(128)?;
        let name = name.to_owned();
        thread::spawn(move || {
            while let Ok((stream, peer)) = socket.accept() {
                let stream: TcpStream = stream.into();
                let Some(peer) = peer.as_socket().map(super::plain) else { continue };
                let mut line = String::new();
                // A client that goes away is its own business.
                if BufReader::new(&stream).read_line(&mut line).is_ok() {
                    let _ = (&stream).write_all(answer(&name, peer).as_bytes());
                }
            }
        });
        return Ok(());
    }
    Ok(())
}
