//! The client against a real API server over a socket: credentials, TLS, watches through faults, Events.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod access;
mod election;
mod faults;

use std::net::TcpListener;

use devapi::{Options, Server};
use kube_io::{Kube, Settings};

async fn server() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    Server::start(Options::new(listener)).await.expect("an API server")
}

fn settings(server: &Server) -> Settings {
    Settings {
        apiserver: Some(server.url()),
        token: Some(server.token().to_owned()),
        ca_data: Some(server.ca_pem().as_bytes().to_vec()),
        ..Settings::default()
    }
}

async fn connect(server: &Server) -> Kube {
    Kube::connect(settings(server)).await.expect("usable settings")
}
