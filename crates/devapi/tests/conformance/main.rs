//! What a real API server answers, asked of the embedded one; and of kube-apiserver too, where `KUBEBUILDER_ASSETS`
//! names it. The expected answers were read off kube-apiserver 1.36.2.

mod cases;
mod rights;

use std::{net::TcpListener, time::Duration};

use devapi::{
    Options, Server,
    external::{External, ExternalOptions, Here, assets},
};
use http::{Request, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::Value;

/// A request and the answer to it.
pub(crate) struct Case {
    title: &'static str,
    method: &'static str,
    path: String,
    content_type: &'static str,
    body: Value,
    code: u16,
    /// What the answer's text contains.
    says: &'static str,
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("config")).expect("client")
}

async fn ask(client: &Client, case: &Case) -> (u16, String) {
    let body = if case.body.is_null() { Vec::new() } else { case.body.to_string().into_bytes() };
    let request = Request::builder()
        .method(case.method)
        .uri(&case.path)
        .header(CONTENT_TYPE, case.content_type)
        .body(body.into())
        .expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&body).into_owned();
    let message = serde_json::from_str::<Value>(&text).ok().filter(|answer| answer["kind"] == "Status");
    (code, message.map_or(text, |answer| format!("{} {}", answer["reason"], answer["message"])))
}

/// Asks everything; tells every wrong answer.
async fn check(client: &Client, server: &str) {
    let mut wrong = Vec::new();
    for case in cases::all() {
        let asked = tokio::time::timeout(Duration::from_secs(30), ask(client, &case)).await;
        let (code, text) = asked.unwrap_or_else(|_| (0, "no end of the answer".into()));
        let text = text.replace("\\\"", "\"");
        if code != case.code || !text.contains(case.says) {
            let shown: String = text.chars().take(600).collect();
            wrong.push(format!("{}: {code} {shown}; wanted {} {:?}", case.title, case.code, case.says));
        }
    }
    assert!(wrong.is_empty(), "{server}:\n{}", wrong.join("\n"));
}

#[tokio::test]
async fn answers_are_those_of_a_real_server() {
    let server = Server::start(Options::new(TcpListener::bind("127.0.0.1:0").expect("a port"))).await;
    let server = server.expect("server");
    check(&client(&server.kubeconfig()).await, "embedded").await;
    server.stop().await;
    if let Some(assets) = assets() {
        let real = External::start(&Here, &assets, ExternalOptions::default()).await.expect("a real server");
        check(&client(&real.kubeconfig()).await, "kube-apiserver").await;
        real.stop().await;
    }
}

/// Rights of a service account: what deployment manifests give it, and no more.
#[tokio::test]
async fn service_accounts_may_do_what_their_roles_allow() {
    let server = Server::start(Options::new(TcpListener::bind("127.0.0.1:0").expect("a port"))).await;
    let server = server.expect("server");
    check_rights(&server.kubeconfig(), server.token()).await;
    server.stop().await;
    if let Some(assets) = assets() {
        let real = External::start(&Here, &assets, ExternalOptions::default()).await.expect("a real server");
        check_rights(&real.kubeconfig(), real.token()).await;
        real.stop().await;
    }
}

async fn check_rights(kubeconfig: &str, admin_token: &str) {
    let admin = client(kubeconfig).await;
    for case in rights::roles() {
        let (code, text) = ask(&admin, &case).await;
        assert_eq!(code, case.code, "{}: {text}", case.title);
    }
    let case = rights::token();
    let (code, text) = ask(&admin, &case).await;
    assert_eq!(code, 201, "{text}");
    let answer: Value = serde_json::from_str(&text).expect("a TokenRequest");
    let token = answer["status"]["token"].as_str().expect("a token");
    let account = client(&kubeconfig.replace(admin_token, token)).await;
    let mut wrong = Vec::new();
    for case in rights::allowed_and_refused() {
        let (code, text) = ask(&account, &case).await;
        let text = text.replace("\\\"", "\"");
        if code != case.code || !text.contains(case.says) {
            wrong.push(format!("{}: {code} {text}; wanted {} {:?}", case.title, case.code, case.says));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // A token is void once its account is gone.
    let (code, text) = ask(&admin, &rights::delete_account()).await;
    assert_eq!(code, 200, "{text}");
    let gone = async {
        while ask(&account, &rights::allowed_and_refused()[0]).await.0 != 401 {
            // Servers remember for some seconds who a token belongs to.
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone).await.expect("the token is still good");
}
