//! Many pods of one node, all of which go.

use std::collections::BTreeSet;
use std::net::{Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use aya::maps::{HashMap, Map};
use tweed_lab::{LabError, receive, wait_until};

use super::datagrams::Datagrams;
use super::life::pins;
use super::maps::pinned;
use super::scene::{LIMIT, Pods, Scene, many};

const PORT: u16 = 7010;
const PAUSE: Duration = Duration::from_millis(1);
/// How many pods come and go.
const PODS: (&str, usize) = ("TWEED_FAST_PATH_PODS", 40);

/// The indexes in the map of a node's links.
fn links(scene: &Scene, index: u8) -> BTreeSet<u32> {
    let map = Map::HashMap(pinned(&scene.cluster[index].node, "_links").unwrap());
    let map: HashMap<_, u32, u32> = map.try_into().unwrap();
    map.keys().collect::<Result<_, _>>().unwrap()
}

/// Each client asks once and is answered.
fn ask_once(server: &UdpSocket, clients: &[UdpSocket]) {
    let mut buffer = [0; 1];
    for client in clients {
        client.send(b"x").unwrap();
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        server.send_to(&buffer, from).unwrap();
        receive(client, &mut buffer).unwrap();
    }
}

#[test]
fn many_pods_go_and_leave_nothing() -> Result<(), LabError> {
    let count = many(PODS.0, PODS.1);
    let mut scene = Scene::new(&[], Pods::Ipv4)?;
    let server = scene.cluster.pod(1, "server")?;
    let far = scene.cluster.pod(2, "far")?;
    let at = |port| SocketAddr::new(server.address(), port);
    let stays = Datagrams::open(far.netns(), at(PORT + 1), &server, PORT + 1, PAUSE)?;
    scene.wait_for(1, "vxlan-in")?;
    let before = (pins(&scene, 1), links(&scene, 1));
    let mut pods = Vec::new();
    for number in 0..count {
        pods.push(scene.cluster.pod(1, &format!("pod{number}"))?);
    }
    let hooks = 2 * (u32::try_from(count).unwrap() + 1) + 2;
    scene.wait_for_hooks(1, hooks)?;
    assert_eq!(links(&scene, 1).len(), before.1.len() + count);
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, PORT));
    let listening = server.netns().listen(bind)?;
    let mut clients = Vec::new();
    for pod in &pods {
        let client = pod.netns().listen(|| {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.connect(at(PORT))?;
            Ok(socket)
        })?;
        clients.push(client);
    }
    for socket in clients.iter().chain([&listening]) {
        socket.set_read_timeout(Some(LIMIT)).unwrap();
    }
    // Both ways of all flows at once.
    let all = 2.0 * f64::from(u32::try_from(count).unwrap());
    wait_until("all flows to be in", LIMIT, || {
        let count = || scene.packets(1, "local").map_err(|error| error.chain());
        let before = count()?;
        ask_once(&listening, &clients);
        let fast = count()? - before;
        if fast < all {
            return Err(format!("{fast} of {all}"));
        }
        Ok(())
    })?;
    // What runs in the pods runs on until they are gone.
    for pod in pods {
        scene.cluster.delete_pod(1, pod)?;
    }
    wait_until("pins and links to be as before", LIMIT, || {
        let now = (pins(&scene, 1), links(&scene, 1));
        if now == before {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    })?;
    scene.wait_for(1, "vxlan-in")?;
    let [sent, arrived, answered] = stays.end();
    assert_eq!((sent, sent), (arrived, answered));
    Ok(())
}
