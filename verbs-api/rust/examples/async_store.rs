//! A key-value store that clients read without the program of the server: tasks of tokio perform
//! one-sided READs.
//!
//! The server stores each key in a slot of its memory, and sends the address and key of the memory
//! in the private data of the connection. A client finds the slot of a key itself. The server
//! changes values meanwhile, so a slot starts and ends with a version, and a client repeats a READ
//! that found two versions.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use urxe::aio::{AsyncConnection, AsyncQueuePair};
use urxe::cm::{Listener, Options};
use urxe::{Access, Device, MemoryRegion, RemoteRegion};

const KEYS: usize = 64;
/// A version, 240 bytes of the value, and the version again.
const SLOT: usize = 256;
const CLIENTS: usize = 4;
const READS: usize = 500;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Stores a value: the byte of its version, 240 times.
fn put(store: &MemoryRegion, key: usize, version: u64) -> Result<()> {
    let start = key * SLOT;
    // The end is written before the value, and the start after it. A READ copies from start to end
    // or in pieces, so it finds two versions if it overlaps the change.
    store.store_u64(start + SLOT - 8, version)?;
    store.write(start + 8, &[version as u8; SLOT - 16])?;
    store.store_u64(start, version)?;
    Ok(())
}

/// Reads the value of a key from the memory of the server. Returns its version.
async fn get(
    connection: &AsyncConnection,
    store: RemoteRegion,
    buffer: &Arc<MemoryRegion>,
    key: usize,
) -> Result<u64> {
    let start = (key * SLOT) as u64;
    loop {
        let slot = store.slice(start..start + SLOT as u64)?;
        connection.read(buffer.share(..SLOT)?, slot).await?;
        let (first, last) = (buffer.load_u64(0)?, buffer.load_u64(SLOT - 8)?);
        let value = buffer.read_vec(8, SLOT - 16)?;
        if first == last && value.iter().all(|byte| *byte == first as u8) {
            return Ok(first);
        }
        tokio::task::yield_now().await;
    }
}

/// One client task: reads all keys again and again. A version must never go back.
async fn read_all(connection: AsyncConnection, store: RemoteRegion) -> Result<usize> {
    let buffer = Arc::new(connection.pd().allocate(SLOT, Access::LOCAL_WRITE)?);
    let mut versions = [0; KEYS];
    for nr in 0..READS {
        let key = nr * 7 % KEYS;
        let version = get(&connection, store, &buffer, key).await?;
        assert!(version >= versions[key], "version {version} after {}", versions[key]);
        versions[key] = version;
    }
    Ok(READS)
}

async fn run(here: Device, there: Device) -> Result<usize> {
    let pd = here.alloc_pd()?;
    let rights = Access::LOCAL_WRITE | Access::REMOTE_READ;
    let store = Arc::new(pd.allocate(KEYS * SLOT, rights)?);
    let listener = Listener::builder().device(&here).bind("127.49.18.1:0")?;
    let addr = listener.local_addr();

    // The server changes all keys until the clients are done.
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (store, stop) = (Arc::clone(&store), Arc::clone(&stop));
        tokio::task::spawn_blocking(move || {
            let mut version = 0;
            while !stop.load(Ordering::Relaxed) {
                version += 1;
                (0..KEYS).try_for_each(|key| put(&store, key, version))?;
                std::thread::yield_now();
            }
            Result::Ok(version)
        })
    };
    let options = Options::new().pd(&pd).private_data(&store.remote().to_bytes());
    let server = tokio::spawn(async move {
        let request = listener.next().await?;
        Ok(AsyncQueuePair::builder().accept(request, &options).await?)
    });

    // All client tasks share one connection.
    let options = Options::new().device(&there);
    let connection = AsyncQueuePair::builder().connect(addr, &options).await?;
    let served: Result<AsyncConnection> = server.await?;
    let served = served?;
    let remote = connection.peer_private_data().region()?;
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(read_all(connection.clone(), remote))).collect();
    let mut reads = 0;
    for client in clients {
        reads += client.await??;
    }
    connection.close().await?;
    drop(served);
    stop.store(true, Ordering::Relaxed);
    println!("the server wrote {} versions of each key meanwhile", writer.await??);
    Ok(reads)
}

pub(crate) fn main() -> Result<()> {
    let (here, there) =
        (Device::open_address([127, 49, 18, 1])?, Device::open_address([127, 49, 18, 2])?);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build()?;
    let reads = runtime.block_on(run(here, there))?;
    assert_eq!(reads, CLIENTS * READS);
    println!("{reads} READs, and each value was whole");
    Ok(())
}
