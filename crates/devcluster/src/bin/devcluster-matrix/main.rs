//! Listens on ports over TCP, UDP and SCTP, and asks others who do: see `devcluster::matrix`.

mod sctp;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::{UnixListener, UnixStream},
    process::ExitCode,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use devcluster::matrix::{Protocol, Request, Target};

const USAGE: &str = "devcluster-matrix SOCKET PORT…
Listens on the ports over TCP, UDP and SCTP. Serves questions about others at the unix socket.";

/// How long to wait before a lost packet is sent again.
const AGAIN: Duration = Duration::from_millis(100);
/// Hundreds of questions run at once, each on a thread of its own that does little.
const STACK: usize = 64 * 1024;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("devcluster-matrix: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, ports @ ..] = args.as_slice() else { bail!("usage: {USAGE}") };
    let ports: Vec<u16> = ports.iter().map(|port| port.parse()).collect::<Result<_, _>>().context(USAGE)?;
    for port in &ports {
        let place = SocketAddr::from(([0u16; 8], *port));
        let tcp = TcpListener::bind(place).with_context(|| format!("listening on tcp {port}"))?;
        // To accept is answer enough.
        thread::spawn(move || tcp.incoming().for_each(drop));
        let udp = UdpSocket::bind(place).with_context(|| format!("listening on udp {port}"))?;
        thread::spawn(move || echo(&udp));
    }
    let sctp = Arc::new(sctp::Endpoint::open(ports)?);
    // One that was left by a predecessor in the same place.
    let _ = fs::remove_file(socket);
    let questions = UnixListener::bind(socket).with_context(|| format!("listening at {socket}"))?;
    for stream in questions.incoming() {
        let (stream, sctp) = (stream?, sctp.clone());
        thread::spawn(move || {
            if let Err(error) = serve(stream, &sctp) {
                eprintln!("devcluster-matrix: {error:#}");
            }
        });
    }
    Ok(())
}

fn echo(socket: &UdpSocket) {
    let mut buffer = [0; 64];
    loop {
        if let Ok((count, peer)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..count], peer);
        }
    }
}

fn serve(stream: UnixStream, sctp: &Arc<sctp::Endpoint>) -> Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let request: Request = serde_json::from_str(&line)?;
    let deadline = Instant::now() + Duration::from_millis(request.timeout_ms);
    let asked = request.targets.into_iter().map(|target| {
        let sctp = sctp.clone();
        let work = move || reaches(&target, deadline, &sctp);
        Ok(thread::Builder::new().stack_size(STACK).spawn(work)?)
    });
    let asked: Vec<_> = asked.collect::<Result<_>>()?;
    let mut answers = Vec::new();
    for one in asked {
        answers.push(one.join().map_err(|_| anyhow::anyhow!("a question panicked"))?);
    }
    let mut answer = serde_json::to_vec(&answers)?;
    answer.push(b'\n');
    (&stream).write_all(&answer)?;
    Ok(())
}

fn reaches(target: &Target, deadline: Instant, sctp: &sctp::Endpoint) -> bool {
    let place = SocketAddr::new(target.address, target.port);
    match target.protocol {
        Protocol::Tcp => {
            let left = deadline.saturating_duration_since(Instant::now());
            !left.is_zero() && TcpStream::connect_timeout(&place, left).is_ok()
        }
        Protocol::Udp => datagram(place, deadline).unwrap_or(false),
        Protocol::Sctp => sctp.reaches(place, deadline, AGAIN),
    }
}

fn datagram(place: SocketAddr, deadline: Instant) -> Result<bool> {
    let any: IpAddr = if place.is_ipv4() { [0u8; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(place)?;
    let mut buffer = [0; 64];
    while Instant::now() < deadline {
        socket.set_read_timeout(Some(AGAIN))?;
        socket.send(b"?")?;
        if socket.recv(&mut buffer).is_ok() {
            return Ok(true);
        }
    }
    Ok(false)
}
