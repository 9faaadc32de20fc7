//! An HTTP server and a client over RDMA: hyper over [`RdmaStream`], as over TCP.
//!
//! hyper takes any stream with the traits of tokio. C programs reach the server, too: `curl` under
//! `librspreload.so` gets the same pages.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server};
use hyper_util::rt::TokioIo;
use urxe::Device;
use urxe::stream::{RdmaListener, RdmaStream};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Answers with the method, the path and the body of the request.
async fn answer(request: Request<Incoming>) -> hyper::Result<Response<Full<Bytes>>> {
    let head = format!("{} {}: ", request.method(), request.uri().path());
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::new(Full::from([head.as_bytes(), &body].concat())))
}

/// Serves each stream in a task of its own.
async fn serve(listener: RdmaListener) -> Result<Infallible> {
    loop {
        let (stream, peer) = listener.accept().await?;
        tokio::spawn(async move {
            let serving = server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            if let Err(error) = serving.await {
                eprintln!("{peer}: {error}");
            }
        });
    }
}

/// Sends requests over one stream.
async fn get(device: &Device, to: SocketAddr) -> Result<()> {
    let stream = RdmaStream::builder().device(device).connect(to).await?;
    let (mut sender, connection) =
        client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(stream)).await?;
    let running = tokio::spawn(connection);
    for size in [0, 100, 1_000_000] {
        let body = vec![b'x'; size];
        let request = Request::post("/echo").header("host", to.to_string());
        // The end of the response before makes the sender ready.
        sender.ready().await?;
        let response = sender.send_request(request.body(Full::from(body.clone()))?).await?;
        println!("{}, {} bytes", response.status(), size);
        let echo = response.into_body().collect().await?.to_bytes();
        assert_eq!(echo, [b"POST /echo: ", &*body].concat());
    }
    drop(sender);
    // The client shuts the stream down.
    Ok(running.await??)
}

/// Runs the server and a client.
pub fn main() -> Result<()> {
    let here = Device::open_address([127, 49, 15, 1])?;
    let there = Device::open_address([127, 49, 15, 2])?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    runtime.block_on(async {
        // With configured devices, `RdmaListener::bind(addr)` is enough.
        let listener = RdmaStream::builder().device(&here).bind(([127, 49, 15, 1], 0).into())?;
        let to = listener.local_addr();
        let server = tokio::spawn(serve(listener));
        get(&there, to).await?;
        server.abort();
        Ok(())
    })
}
