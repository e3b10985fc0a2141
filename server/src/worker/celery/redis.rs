//! Celery's queue in Redis.
//!
//! Celery's clients put messages into lists: `QUEUE`, and `QUEUE\x06\x163` and so on for other priorities. A worker
//! moves a message out of its list in one atomic step, so that no message is ever lost. Taken messages are in keys of
//! their own: Celery's workers give messages back by their own rules (visibility timeout), and would redeliver a
//! message that a worker of this program still works on.
//!
//! | key | holds |
//! |---|---|
//! | `QUEUE.taken` | deliveries by the time at which their lease ends |
//! | `QUEUE.messages` | their messages |
//! | `QUEUE.tries` | how often each was delivered |
//! | `QUEUE.number` | the number of the last one |
//! | `QUEUE.dead` | dead letters, the newest first |
//! | `celery-task-meta-ID` | answers, where Celery's result backend looks for them |

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::Utc;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisError, Script};
use tokio::time::{sleep, timeout};

use super::super::broker::{Broker, Delivery, Depth, Error, Lease, Result};
use super::super::job::BYTES_MAXIMUM;
use super::super::marker::Done;
use super::message::{Task, failure, success};
use crate::settings::WorkSettings;

/// The suffixes of the lists' names, the most urgent first (`priority_steps` and `sep` of kombu's transport).
const PRIORITIES: [&str; 4] = ["", "\x06\x163", "\x06\x166", "\x06\x169"];

/// The interval at which an empty queue is polled, and the number of polls before no message is reported.
const PERIOD: Duration = Duration::from_millis(100);
const LOOKS: u32 = 10;

/// How long Redis may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Most bytes of a dead letter.
const LETTER_MAXIMUM: usize = 4 << 20;

/// How long an answer is kept, in seconds: Celery's own default.
const ANSWER_KEPT: u64 = 86_400;

/// Takes a delivery whose lease has expired, else the next message. Redis sends no more bytes of it than the worker
/// reads.
const RECEIVE: &str = "
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
local tag = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1)[1]
local message
if tag then
    message = redis.call('HGET', KEYS[2], tag)
    if not message then
        redis.call('ZREM', KEYS[1], tag)
        return false
    end
else
    for place = 5, #KEYS do
        message = redis.call('RPOP', KEYS[place])
        if message then break end
    end
    if not message then return false end
    tag = tostring(redis.call('INCR', KEYS[4]))
    redis.call('HSET', KEYS[2], tag, message)
end
local tries = redis.call('HINCRBY', KEYS[3], tag, 1)
redis.call('ZADD', KEYS[1], now + ARGV[1], tag)
return {tag, tries, string.sub(message, 1, ARGV[2])}";

/// Changes the end of a delivery's lease, unless another worker has taken it.
const EXTEND: &str = "
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZADD', KEYS[1], 'XX', 'CH', now + ARGV[3], ARGV[1])";

/// Removes a delivery, and stores its dead letter and its answer in their keys.
const END: &str = "
if redis.call('ZREM', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
if ARGV[2] ~= '' then redis.call('LPUSH', KEYS[4], ARGV[2]) end
if ARGV[3] ~= '' then
    redis.call('SET', KEYS[5], ARGV[3], 'EX', ARGV[4])
    redis.call('PUBLISH', KEYS[5], ARGV[3])
end
return 1";

/// Celery's queue in Redis.
pub(in super::super) struct Celery {
    client: Client,
    connection: tokio::sync::OnceCell<ConnectionManager>,
    queue: String,
    lease: Duration,
    receive: Script,
    extend: Script,
    end: Script,
}

impl std::fmt::Debug for Celery {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Celery").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl Celery {
    pub(in super::super) fn open(settings: &WorkSettings) -> Result<Self, String> {
        Ok(Self {
            client: Client::open(settings.broker.as_str()).map_err(|error| error.to_string())?,
            connection: tokio::sync::OnceCell::new(),
            queue: settings.queue.clone(),
            lease: settings.lease,
            receive: Script::new(RECEIVE),
            extend: Script::new(EXTEND),
            end: Script::new(END),
        })
    }

    /// The connection, which reconnects when needed.
    async fn connection(&self) -> Result<ConnectionManager> {
        let open = async || {
            let config = ConnectionManagerConfig::new()
                .set_number_of_retries(2)
                .set_max_delay(Duration::from_millis(500))
                .set_connection_timeout(Some(ANSWER))
                .set_response_timeout(Some(ANSWER));
            ConnectionManager::new_lazy_with_config(self.client.clone(), config)
        };
        self.connection.get_or_try_init(open).await.cloned().map_err(failed)
    }

    fn key(&self, what: &str) -> String {
        format!("{}.{what}", self.queue)
    }

    fn lists(&self) -> impl Iterator<Item = String> {
        PRIORITIES.iter().map(|end| format!("{}{end}", self.queue))
    }

    async fn next(&self) -> Result<Option<Delivery>> {
        let mut call = self.receive.prepare_invoke();
        for key in ["taken", "messages", "tries", "number"] {
            call.key(self.key(key));
        }
        for list in self.lists() {
            call.key(list);
        }
        // One byte more than the limit, to detect messages that are too large.
        call.arg(milliseconds(self.lease)).arg(BYTES_MAXIMUM + 1);
        let mut connection = self.connection().await?;
        let found: Option<(String, u64, Vec<u8>)> = call.invoke_async(&mut connection).await.map_err(failed)?;
        let Some((token, tries, message)) = found else { return Ok(None) };
        let Task { id, job, trace } = Task::parse(&message, Utc::now());
        Ok(Some(Delivery::new(
            Lease { message: token.clone(), token, tries, reply: id },
            &Bytes::from(message),
            trace,
            |_| job,
        )))
    }

    async fn extended(&self, lease: &Lease, time: Duration) -> Result<()> {
        let mut call = self.extend.prepare_invoke();
        call.key(self.key("taken")).key(self.key("tries"));
        call.arg(&lease.token).arg(lease.tries.to_string()).arg(milliseconds(time));
        let mut connection = self.connection().await?;
        let _: u64 = call.invoke_async(&mut connection).await.map_err(failed)?;
        Ok(())
    }

    async fn ended(&self, lease: &Lease, letter: &str, answer: &str) -> Result<()> {
        let mut call = self.end.prepare_invoke();
        for key in ["taken", "messages", "tries", "dead"] {
            call.key(self.key(key));
        }
        call.key(format!("celery-task-meta-{}", lease.reply.as_deref().unwrap_or_default()));
        call.arg(&lease.token).arg(letter).arg(answer).arg(ANSWER_KEPT);
        let mut connection = self.connection().await?;
        let _: u64 = call.invoke_async(&mut connection).await.map_err(failed)?;
        Ok(())
    }
}

#[async_trait]
impl Broker for Celery {
    async fn receive(&self) -> Result<Option<Delivery>> {
        for _ in 0..LOOKS {
            let found = timeout(ANSWER * 2, self.next()).await.unwrap_or_else(|_| Err(Error("no answer".into())))?;
            if found.is_some() {
                return Ok(found);
            }
            sleep(PERIOD).await;
        }
        Ok(None)
    }

    async fn progress(&self, lease: &Lease) -> Result<()> {
        self.extended(lease, self.lease).await
    }

    async fn done(&self, lease: &Lease, done: &Done) -> Result<()> {
        let answer = lease.reply.as_ref().map(|id| success(id, done, Utc::now()).to_string());
        self.ended(lease, "", &answer.unwrap_or_default()).await
    }

    async fn give_back(&self, lease: &Lease, after: Duration) -> Result<()> {
        self.extended(lease, after).await
    }

    async fn dead_letter(&self, delivery: &Delivery, reason: &str) -> Result<()> {
        let lease = &delivery.lease;
        let answer = lease.reply.as_ref().map(|id| failure(id, reason, Utc::now()).to_string());
        let letter = delivery.dead_letter(reason, LETTER_MAXIMUM);
        self.ended(lease, &letter, &answer.unwrap_or_default()).await
    }

    async fn depth(&self) -> Result<Depth> {
        let mut asked = redis::pipe();
        for list in self.lists() {
            asked.llen(list);
        }
        asked.zcard(self.key("taken"));
        let mut connection = self.connection().await?;
        let numbers: Vec<u64> = asked.query_async(&mut connection).await.map_err(failed)?;
        let (taken, lists) = numbers.split_last().ok_or_else(|| Error("no answer".into()))?;
        Ok(Depth { waiting: lists.iter().sum(), taken: *taken })
    }

    fn system(&self) -> &'static str {
        "redis"
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn failed(error: RedisError) -> Error {
    Error(error.to_string())
}
