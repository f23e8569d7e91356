//! Where the credentials of a kubeconfig come from.

use std::time::SystemTime;

use super::*;
use crate::client::timestamp;

/// A server that answers this token, and its URL.
async fn server_for(token: &'static str) -> (Server, Value) {
    let list = Box::new(list_of::<Node>(&["a"], "9"));
    let server = Server::start(vec![Answer::For(token, list), quiet()]).await;
    let cluster = json!({"server": format!("http://{}", server.address)});
    (server, cluster)
}

/// A kubeconfig whose credentials this shell script gives, in its folder: the file `credential`
/// has them, with this status.
fn write_exec_kubeconfig(folder: &Path, cluster: Value, script: &str, status: &Value) {
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": status,
    });
    std::fs::write(folder.join("credential"), credential.to_string()).unwrap();
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/sh",
        "args": ["-c", format!("cd '{}' && {script}", folder.display())],
        "interactiveMode": "Never",
    });
    write_kubeconfig_as(folder, cluster, json!({"exec": exec}));
}

/// It is run in a thread of its own: probes and other sources do not wait for it.
#[tokio::test]
async fn a_program_that_gives_credentials_holds_up_nothing_else() {
    const PLUGIN: &str = "touch started; \
        for _ in $(seq 200); do test -e go && exec cat credential; sleep 0.05; done; exit 1";
    let (_server, cluster) = server_for("given").await;
    let mut watched = Watched::<Node>::without_kubeconfig();
    let folder = watched.folder.path().to_owned();
    let status = json!({"token": "given"});
    write_exec_kubeconfig(&folder, cluster, PLUGIN, &status);
    let started = async {
        while !folder.join("started").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(STUCK, started).await.unwrap();
    std::fs::write(folder.join("go"), "").unwrap();
    let seen = watched.listed().await;
    let of_plugin =
        |event: &Event<Node>| matches!(event, Event::Lost(loss) if loss.reason.contains("exec"));
    assert!(!seen.iter().any(of_plugin), "{seen:?}");
    watched.end().await;
}

#[tokio::test]
async fn the_line_end_after_a_token_in_a_file_is_no_part_of_it() {
    let (server, cluster) = server_for("second").await;
    let mut watched = Watched::<Node>::without_kubeconfig();
    let folder = watched.folder.path().to_owned();
    let token = folder.join("token");
    std::fs::write(&token, "first\n").unwrap();
    write_kubeconfig_as(&folder, cluster, json!({"tokenFile": &token}));
    let refused = |event: &Event<Node>| matches!(event, Event::Lost(loss) if !loss.reason.contains("kubeconfig cannot be used"));
    let seen = watched.until(refused).await;
    let Some(Event::Lost(loss)) = seen.last() else {
        panic!("{seen:?}");
    };
    assert!(loss.reason.contains("credentials (401)"), "{loss:?}");
    std::fs::write(&token, "second\n").unwrap();
    watched.listed().await;
    assert_eq!(server.credentials().last().unwrap(), "Bearer second");
    watched.end().await;
}

#[tokio::test]
async fn credentials_that_cannot_be_had_are_named_with_their_file_or_program() {
    let (_server, cluster) = server_for("given").await;
    let mut watched = Watched::<Node>::without_kubeconfig();
    let folder = watched.folder.path().to_owned();
    let exec = |command: &str| {
        json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "interactiveMode": "Never",
        })
    };
    for (user, named) in [
        (json!({"tokenFile": folder.join("none")}), "/none"),
        (
            json!({"tokenFile": "/dev/zero"}),
            "/dev/zero: it is not a regular file",
        ),
        (json!({"exec": exec("/no/such/plugin")}), "auth exec"),
        (json!({"exec": exec("/bin/false")}), "/bin/false"),
    ] {
        write_kubeconfig_as(&folder, cluster.clone(), user);
        let of_credentials =
            |event: &Event<Node>| matches!(event, Event::Lost(loss) if loss.reason.contains(named));
        let seen = watched.until(of_credentials).await;
        let Some(Event::Lost(loss)) = seen.last() else {
            panic!("{seen:?}");
        };
        let begins = loss
            .reason
            .starts_with("the credentials for the API server http://");
        assert!(begins, "{loss:?}");
    }
    watched.end().await;
}

/// Others may write where it is: a FIFO without a writer, or a device without an end.
#[tokio::test]
async fn a_kubeconfig_without_end_and_certificates_without_end_are_named_and_not_waited_for() {
    let (_server, cluster) = server_for("given").await;
    let mut watched = Watched::<Node>::without_kubeconfig();
    let folder = watched.folder.path().to_owned();
    let fifo = folder.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    std::fs::rename(fifo, folder.join("kubeconfig")).unwrap();
    let named = "kubeconfig: it is not a regular file";
    let is_named =
        |event: &Event<Node>| matches!(event, Event::Lost(loss) if loss.reason.contains(named));
    watched.until(is_named).await;
    let mut endless = cluster.clone();
    endless["certificate-authority"] = "/dev/zero".into();
    write_kubeconfig_as(&folder, endless, json!({"token": "given"}));
    let is_named = |event: &Event<Node>| matches!(event, Event::Lost(loss) if loss.reason.contains("cannot read /dev/zero: it is not"));
    watched.until(is_named).await;
    write_kubeconfig_as(&folder, cluster, json!({"token": "given"}));
    watched.listed().await;
    watched.end().await;
}

/// It has given credentials, which end: the agent says so, and goes on when it gives others.
#[tokio::test]
async fn a_program_that_hangs_when_the_credentials_end_is_named_and_not_started_again_and_again() {
    const PLUGIN: &str = "echo >> started; test -e hangs || exec cat credential; \
        for _ in $(seq 2000); do test -e hangs || exec cat credential; sleep 0.05; done; exit 1";
    let list = || Box::new(list_of::<Node>(&["a"], "9"));
    let mut answers = vec![Answer::For("given", list())];
    // Each makes another request.
    answers.extend([(); 200].map(|()| Answer::Stream(vec![], End::Clean)));
    let server = Server::start(answers).await;
    let cluster = json!({"server": format!("http://{}", server.address)});
    let timeout = Duration::from_secs(1);
    let mut watched = Watched::<Node>::prepared(|watcher| {
        watcher.client.answer_timeout = timeout;
        watcher.pauses = watcher.pauses.with_max_delay(timeout / 10);
    });
    let folder = watched.folder.path().to_owned();
    // A client gets others a minute before.
    let end = SystemTime::now() + Duration::from_secs(61);
    let status = json!({"token": "given", "expirationTimestamp": timestamp(end)});
    write_exec_kubeconfig(&folder, cluster, PLUGIN, &status);
    watched.listed().await;
    let hangs = folder.join("hangs");
    std::fs::write(&hangs, "").unwrap();
    let is_named = |event: &Event<Node>| matches!(event, Event::Lost(loss) if loss.reason.contains("does /bin/sh hang"));
    watched.until(is_named).await;
    let started = || std::fs::read(folder.join("started")).unwrap().len();
    let before = started();
    tokio::time::sleep(3 * timeout).await;
    assert_eq!(started(), before);
    std::fs::remove_file(hangs).unwrap();
    watched.restored().await;
    watched.end().await;
}
