//! Serves an API for trying kubectl by hand: `serve [ADDRESS] [KUBECONFIG]`.

use std::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:6443".into());
    let file = arguments.next().unwrap_or_else(|| "devapi.kubeconfig".into());
    let mut options = devapi::Options::new(TcpListener::bind(&address)?);
    options.schedule = true;
    let server = devapi::Server::start(options).await?;
    std::fs::write(&file, server.kubeconfig())?;
    println!("serving {}; try: kubectl --kubeconfig {file} get namespaces", server.url());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    Ok(())
}
