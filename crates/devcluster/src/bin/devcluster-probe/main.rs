//! A server that says who reached it, and the client that asks. Runs in pods of a development cluster.
//!
//! Which of several servers answers is asked with `who` (see there).
//!
//! TCP: the client sends `probe <bytes>` and that many bytes, the server answers with one line `peer <address>` and the
//! same bytes. UDP: one datagram each way, the answer is `peer <address>` and the same bytes. A
//! server asked in HTTP answers in HTTP.

mod who;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

const USAGE: &str = "devcluster-probe serve [--port PORT] [--from ADDRESS] [--name NAME]
devcluster-probe batch LABEL=tcp|udp|sctp:ADDRESS:PORT … [--count N] [--timeout-ms N]   which servers answer
devcluster-probe steady tcp|udp|sctp:ADDRESS:PORT [--rate N] [--timeout-ms N]   a question and a line each, until killed
devcluster-probe http ADDRESS:PORT [--timeout-ms N]
devcluster-probe tcp|udp ADDRESS:PORT [--bytes N] [--timeout-ms N] [--from ADDRESS] [--tries N]
devcluster-probe many ADDRESS:PORT [--count N] [--timeout-ms N]   N connections, all open at once, then used
The client prints `peer=<how the server sees us> connect_us=<n> rtt_us=<n> bytes=<n>`.";

struct Flags {
    port: u16,
    bytes: usize,
    timeout: Duration,
    from: Option<IpAddr>,
    tries: u32,
    count: usize,
    rate: usize,
    name: String,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("devcluster-probe: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (words, flags) = parse(&args)?;
    match words.as_slice() {
        ["serve"] => serve(&flags),
        ["batch", targets @ ..] => {
            println!("{}", who::batch(targets, flags.count, flags.timeout)?);
            Ok(())
        }
        ["steady", target] => {
            println!("{}", who::steady(target, flags.rate, flags.timeout)?);
            Ok(())
        }
        [protocol @ ("tcp" | "udp" | "http" | "many"), target] => {
            let target: SocketAddr =
                target.parse().with_context(|| format!("{target} is no ADDRESS:PORT (IPv6 in brackets)"))?;
            let mut last = None;
            for _ in 0..flags.tries.max(1) {
                let asked = match *protocol {
                    "tcp" => tcp(target, &flags),
                    "udp" => udp(target, &flags),
                    "many" => many(target, &flags),
                    _ => http(target, &flags),
                };
                match asked {
                    Ok(line) => {
                        println!("{line}");
                        return Ok(());
                    }
                    Err(error) => last = Some(error),
                }
            }
            last.map_or(Ok(()), Err)
        }
        _ => bail!("usage:\n{USAGE}"),
    }
}

fn parse(args: &[String]) -> Result<(Vec<&str>, Flags)> {
    let mut flags = Flags {
        port: 8080,
        bytes: 1,
        timeout: Duration::from_secs(2),
        from: None,
        tries: 1,
        count: 1,
        rate: 10,
        name: "server".to_owned(),
    };
    let mut words = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--port" => flags.port = value()?.parse()?,
            "--bytes" => flags.bytes = value()?.parse()?,
            "--timeout-ms" => flags.timeout = Duration::from_millis(value()?.parse()?),
            "--from" => flags.from = Some(value()?.parse()?),
            "--count" => flags.count = value()?.parse()?,
            "--rate" => flags.rate = value()?.parse()?,
            "--name" => flags.name = value()?.clone(),
            "--tries" => flags.tries = value()?.parse()?,
            word => words.push(word),
        }
    }
    Ok((words, flags))
}

// --- server ---

fn serve(flags: &Flags) -> Result<()> {
    let port = flags.port;
    // `::` takes IPv4 too; a namespace without IPv6 has only the other. Where there are several addresses, datagrams are
    // answered from the one they came to only by a server bound to it.
    let any = [[0u16; 8].into(), [0u8; 4].into()];
    let places: Vec<SocketAddr> = match flags.from {
        Some(address) => vec![(address, port).into()],
        None => any.into_iter().map(|address: IpAddr| (address, port).into()).collect(),
    };
    let udp = UdpSocket::bind(places.as_slice())?;
    let name = flags.name.clone();
    thread::spawn(move || answer_datagrams(&udp, &name));
    who::serve_sctp(&flags.name, &places)?;
    let listener = TcpListener::bind(places.as_slice())?;
    for stream in listener.incoming() {
        let (stream, name) = (stream?, flags.name.clone());
        thread::spawn(move || {
            // A client that goes away is its own business.
            let _ = answer(stream, &name);
        });
    }
    Ok(())
}

fn answer(stream: TcpStream, name: &str) -> Result<()> {
    let peer = plain(stream.peer_addr()?);
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    while reader.read_line(&mut line)? > 0 {
        if let Some(count) = line.strip_prefix("probe ") {
            let count: u64 = count.trim().parse()?;
            let mut reply = format!("peer {peer}\n").into_bytes();
            (&mut reader).take(count).read_to_end(&mut reply)?;
            writer.write_all(&reply)?;
        } else if line == "who\n" {
            writer.write_all(who::answer(name, peer).as_bytes())?;
        } else {
            while reader.read_line(&mut line)? > 0 && !line.ends_with("\n\r\n") && !line.ends_with("\n\n") {}
            let body = format!("peer {peer}\n");
            let length = body.len();
            write!(writer, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}")?;
            return Ok(());
        }
        line.clear();
    }
    Ok(())
}

fn answer_datagrams(socket: &UdpSocket, name: &str) {
    let mut buffer = vec![0; 65_536];
    while let Ok((count, peer)) = socket.recv_from(&mut buffer) {
        let mut reply = format!("peer {}\n", plain(peer)).into_bytes();
        reply.extend(&buffer[..count]);
        if &buffer[..count] == b"who\n" {
            reply = who::answer(name, plain(peer)).into_bytes();
        }
        let _ = socket.send_to(&reply, peer);
    }
}

/// An IPv4 peer of a socket for both families reads as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

// --- client ---

fn tcp(target: SocketAddr, flags: &Flags) -> Result<String> {
    let since = Instant::now();
    ensure!(flags.from.is_none(), "--from works with udp only");
    let stream = TcpStream::connect_timeout(&target, flags.timeout)
        .with_context(|| format!("connecting to {target}"))?;
    let connected = since.elapsed();
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(flags.timeout))?;
    stream.set_write_timeout(Some(flags.timeout))?;
    let sent = Instant::now();
    let payload = pattern(flags.bytes);
    let mut writer = stream.try_clone()?;
    let request = [format!("probe {}\n", flags.bytes).as_bytes(), &payload].concat();
    // Written beside the reading: a large payload would fill both directions otherwise.
    let writing = thread::spawn(move || writer.write_all(&request));
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).with_context(|| format!("connected to {target}, but got no answer"))?;
    let mut back = vec![0; flags.bytes];
    reader.read_exact(&mut back).with_context(|| format!("the answer of {target} stopped midway"))?;
    let rtt = sent.elapsed();
    match writing.join() {
        Ok(written) => written.with_context(|| format!("sending to {target}"))?,
        Err(_) => bail!("the writing thread panicked"),
    }
    ensure!(back == payload, "{target} sent other bytes back than it got");
    report(&line, connected, rtt, flags.bytes)
}

/// Many connections that are all there before the first is used.
fn many(target: SocketAddr, flags: &Flags) -> Result<String> {
    let since = Instant::now();
    let mut streams = Vec::new();
    for at in 0..flags.count {
        let stream = TcpStream::connect_timeout(&target, flags.timeout)
            .with_context(|| format!("connection {at} to {target}"))?;
        stream.set_read_timeout(Some(flags.timeout))?;
        streams.push(stream);
    }
    let connected = since.elapsed();
    let sent = Instant::now();
    for stream in &mut streams {
        stream.write_all(b"probe 1\n.")?;
    }
    let mut line = String::new();
    for (at, stream) in streams.into_iter().enumerate() {
        line.clear();
        let mut reader = BufReader::new(stream);
        reader.read_line(&mut line).with_context(|| format!("no answer on connection {at}"))?;
        ensure!(line.starts_with("peer "), "connection {at} was answered {line:?}");
    }
    report(&line, connected, sent.elapsed(), flags.count)
}

/// Any web server: what counts is that it answers.
fn http(target: SocketAddr, flags: &Flags) -> Result<String> {
    let since = Instant::now();
    let mut stream = TcpStream::connect_timeout(&target, flags.timeout)
        .with_context(|| format!("connecting to {target}"))?;
    let connected = since.elapsed();
    stream.set_read_timeout(Some(flags.timeout))?;
    let sent = Instant::now();
    stream.write_all(format!("GET / HTTP/1.0\r\nHost: {target}\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream
        .read_to_end(&mut answer)
        .with_context(|| format!("connected to {target}, but got no whole answer"))?;
    let rtt = sent.elapsed();
    ensure!(answer.starts_with(b"HTTP/1."), "{target} does not speak HTTP");
    let text = String::from_utf8_lossy(&answer);
    let body = text.split("\r\n\r\n").nth(1).unwrap_or_default().trim();
    Ok(format!(
        "connect_us={} rtt_us={} bytes={}\n{body}",
        connected.as_micros(),
        rtt.as_micros(),
        answer.len()
    ))
}

fn udp(target: SocketAddr, flags: &Flags) -> Result<String> {
    let any: IpAddr = if target.is_ipv4() { [0, 0, 0, 0].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((flags.from.unwrap_or(any), 0)).context("binding")?;
    socket.connect(target).with_context(|| format!("no route to {target}"))?;
    socket.set_read_timeout(Some(flags.timeout))?;
    let payload = pattern(flags.bytes);
    let sent = Instant::now();
    socket.send(&payload).with_context(|| format!("sending {} bytes to {target}", flags.bytes))?;
    let mut buffer = vec![0; 65_536];
    let count = socket.recv(&mut buffer).with_context(|| format!("no answer from {target}"))?;
    let rtt = sent.elapsed();
    let reply = buffer.get(..count).unwrap_or_default();
    let end = reply.iter().position(|byte| *byte == b'\n').context("the answer has no first line")?;
    ensure!(reply[end + 1..] == payload, "{target} sent other bytes back than it got");
    report(&String::from_utf8_lossy(&reply[..end]), Duration::ZERO, rtt, flags.bytes)
}

fn report(line: &str, connected: Duration, rtt: Duration, bytes: usize) -> Result<String> {
    let peer = line.trim().strip_prefix("peer ").context("the answer is not a probe's")?;
    Ok(format!("peer={peer} connect_us={} rtt_us={} bytes={bytes}", connected.as_micros(), rtt.as_micros()))
}

/// Bytes that show a shift or a swap.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from(at % 251).unwrap_or_default()).collect()
}
