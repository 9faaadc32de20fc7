//! The exchange against a substitute for `ibv_rc_pingpong` that makes the same calls with the same
//! bytes.

use std::thread;

use super::*;

const CLIENT: &str = "0000:00001a:0b38ae:00000000000000000000ffff0a4d000b";
const SERVER: &str = "0000:0000ff:ffffff:fe8000000000000000163efffe5e6f01";

fn loopback() -> TcpListener {
    listen("127.62.0.1".parse().unwrap(), 0).unwrap()
}

/// Calls `read` once with the program's buffer size.
fn read_once(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = [0xa5; ADDRESS_LEN];
    let len = stream.read(&mut bytes).unwrap();
    bytes[..len].to_vec()
}

fn zero_terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

#[test]
fn addresses_have_the_text_of_ibv_rc_pingpong() {
    for text in [CLIENT, SERVER, "0001:000001:000000:00000000000000000000000000000000"] {
        assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
    }
    let address: Address = CLIENT.parse().unwrap();
    assert_eq!((address.qpn.value(), address.psn.value()), (0x1a, 0x0b_38ae));
    assert_eq!(address.gid.to_ip(), "10.77.0.11".parse::<IpAddr>().unwrap());
    // The format %x of sscanf accepts fewer digits.
    assert_eq!("0:1a:b38ae:00000000000000000000ffff0a4d000b".parse(), Ok(address));
}

#[test]
fn other_texts_are_no_addresses() {
    let cut = &CLIENT[..CLIENT.len() - 1];
    for text in [
        "",
        "hello",
        "0000:00001a:0b38ae",
        cut,
        "0000:00001a:0b38ae:+0000000000000000000ffff0a4d000b",
    ] {
        assert_eq!(text.parse::<Address>(), Err(NotAnAddress), "{text}");
    }
    for (field, wrong) in
        [("0000:", "10000:"), ("00001a:", "100001a:"), ("0b38ae:", "10b38ae:"), ("000b", "000b:0")]
    {
        assert_eq!(
            CLIENT.replacen(field, wrong, 1).parse::<Address>(),
            Err(NotAnAddress),
            "{wrong}"
        );
    }
}

#[test]
fn as_client_of_the_real_server() {
    let listener = loopback();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert_eq!(read_once(&mut stream), zero_terminated(CLIENT));
        stream.write_all(&zero_terminated(SERVER)).unwrap();
        assert_eq!(read_once(&mut stream), b"done\0");
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    let mut exchange = Exchange::connect(&address.ip().to_string(), address.port()).unwrap();
    exchange.send(&CLIENT.parse().unwrap()).unwrap();
    assert_eq!(exchange.receive().unwrap().to_string(), SERVER);
    exchange.send_done().unwrap();
    drop(exchange);
    server.join().unwrap();
}

#[test]
fn as_server_of_the_real_client() {
    let listener = loopback();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&zero_terminated(CLIENT)).unwrap();
        assert_eq!(read_once(&mut stream), zero_terminated(SERVER));
        stream.write_all(b"done\0").unwrap();
    });
    let mut exchange = Exchange::accept(&listener).unwrap();
    assert_eq!(exchange.receive().unwrap().to_string(), CLIENT);
    exchange.send(&SERVER.parse().unwrap()).unwrap();
    exchange.receive_done().unwrap();
    client.join().unwrap();
}

#[test]
fn another_program_is_named() {
    let listener = loopback();
    let address = listener.local_addr().unwrap();
    let client = thread::spawn(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(&[b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[b'x'; 52]].concat()).unwrap();
        stream
    });
    let error = Exchange::accept(&listener).unwrap().receive().unwrap_err();
    assert!(error.to_string().contains("sent \"GET / HTTP/1.1"), "{error}");
    drop(client.join().unwrap());
    let closed = thread::spawn(move || drop(TcpStream::connect(address).unwrap()));
    let error = Exchange::accept(&listener).unwrap().receive().unwrap_err();
    assert!(matches!(error, ExchangeError::Connection { .. }), "{error}");
    closed.join().unwrap();
}

#[test]
fn a_refused_connection_names_the_port() {
    let address = loopback().local_addr().unwrap();
    let error = Exchange::connect(&address.ip().to_string(), address.port()).unwrap_err();
    assert!(error.to_string().contains(&format!("TCP port {}", address.port())), "{error}");
}
