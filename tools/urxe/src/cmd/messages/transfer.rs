//! A transfer of a known pattern, with verification of every byte.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::MessagesError;
use super::channel::{MESSAGE_MAX, Messages};
use crate::output;

/// Returns the byte at a place of the pattern, which has no period that a message could be a
/// multiple of.
fn pattern(at: u64) -> u8 {
    (at ^ at >> 8 ^ at >> 16 ^ at >> 24) as u8
}

/// Sends `total` bytes. The other end replies with the number of correct bytes.
pub fn send(messages: &Messages, total: u64) -> Result<(), MessagesError> {
    let began = Instant::now();
    let mut at = 0;
    while at < total {
        let len = (total - at).min(MESSAGE_MAX as u64);
        let message: Vec<u8> = (at..at + len).map(pattern).collect();
        messages.send(&message)?;
        at += len;
    }
    messages.end_of_input()?;
    let answer = messages.receive()?.ok_or(MessagesError::Ended)?;
    let counted = answer.first_chunk().map_or(0, |count| u64::from_be_bytes(*count));
    messages.disconnect();
    if counted != total {
        return Err(MessagesError::Count { counted, sent: total });
    }
    output::line(&format!("sent {}", figures(total, began.elapsed())));
    Ok(())
}

/// Receives the pattern and verifies it.
pub fn receive(messages: &Messages, from: SocketAddr) -> Result<(), MessagesError> {
    let began = Instant::now();
    let mut total = 0;
    loop {
        let message = messages.receive()?.ok_or(MessagesError::Ended)?;
        if message.is_empty() {
            break;
        }
        if let Some(wrong) = message.iter().zip(total..).position(|(byte, at)| *byte != pattern(at))
        {
            return Err(MessagesError::Wrong { at: total + wrong as u64 });
        }
        total += message.len() as u64;
    }
    let took = began.elapsed();
    messages.send(&u64::to_be_bytes(total))?;
    messages.wait_for_end();
    output::line(&format!("{from}: received {}", figures(total, took)));
    Ok(())
}

fn figures(bytes: u64, took: Duration) -> String {
    let seconds = took.as_secs_f64();
    format!(
        "{bytes} bytes in {seconds:.3} s, {:.1} MB/s, all as sent",
        bytes as f64 / seconds / 1e6
    )
}
