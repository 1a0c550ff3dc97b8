//! One level of load: slots that send one request after the other, or arrivals at a rate.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_local};

use crate::clock::{nanoseconds, now, processor_time};
use crate::exchange::{Exchanged, Line};
use crate::metrics::Watch;
use crate::prompt::Writer;
use crate::record::{LevelLine, Phase, Recorder, RequestLine, hash};
use crate::reply::{Outcome, Reply};
use crate::report::{ClientTruth, Level, Load, Weight};
use crate::run::{Progress, Settings};
use crate::stats::{Times, float, seconds};
use crate::stream::Stream;
use crate::sums::{Job, Sums, Window};
use crate::ticks::{self, Tick};

/// Longest that a refused slot waits before it asks again, whatever the server says.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// What the slots of a level share.
pub(crate) struct Ground {
    pub(crate) line: Line,
    pub(crate) writer: Writer,
    pub(crate) settings: Rc<Settings>,
    pub(crate) recorder: Option<Rc<Recorder>>,
    pub(crate) run_began: u64,
    pub(crate) index: usize,
    pub(crate) load: Load,
    sums: RefCell<Sums>,
    window: Cell<Window>,
    /// Measured requests begun, and warm-up requests begun.
    begun: Cell<(u64, u64)>,
    in_flight: Cell<u64>,
    warmed: Cell<u32>,
    stopped: Cell<bool>,
    processor_at_begin: Cell<u64>,
    processor_at_end: Cell<Option<u64>>,
    over: Notify,
}

/// A place for one request at a time, with its connection.
#[derive(Default)]
struct Slot {
    kept: Option<Stream>,
    request: Vec<u8>,
    reply: Reply,
}

impl Ground {
    pub(crate) fn new(
        line: Line,
        writer: Writer,
        settings: Rc<Settings>,
        recorder: Option<Rc<Recorder>>,
        (run_began, index, load): (u64, usize, Load),
    ) -> Self {
        Self {
            line,
            writer,
            settings,
            recorder,
            run_began,
            index,
            load,
            sums: RefCell::default(),
            window: Cell::new(Window::NEVER),
            begun: Cell::new((0, 0)),
            in_flight: Cell::new(0),
            warmed: Cell::new(0),
            stopped: Cell::new(false),
            processor_at_begin: Cell::new(0),
            processor_at_end: Cell::new(None),
            over: Notify::new(),
        }
    }

    /// Measured requests, and tokens within the window, of what is over.
    fn so_far(&self) -> (u64, u64) {
        let sums = self.sums.borrow();
        (sums.measured, sums.window_tokens)
    }

    fn begin_window(&self) {
        if !self.window.get().begun() {
            let begin = now();
            self.window.set(Window { begin, end: u64::MAX });
            self.processor_at_begin.set(processor_time());
            // What came while connections were opened says nothing about the window.
            *self.line.stamp_lag.borrow_mut() = Times::default();
        }
    }

    fn end_window(&self) {
        self.stopped.set(true);
        let window = self.window.get();
        if window.begun() && window.end == u64::MAX {
            self.window.set(Window { end: now(), ..window });
            self.processor_at_end.set(Some(processor_time()));
        }
        self.over.notify_waiters();
    }

    /// The next request of a slot, if there is to be one.
    fn next(&self, slot_warm: bool, scheduled: u64) -> Option<Job> {
        let (measured, warm_up) = self.begun.get();
        if self.stopped.get() {
            return None;
        }
        if !slot_warm || !self.window.get().begun() {
            self.begun.set((measured, warm_up + 1));
            return Some(Job { phase: Phase::WarmUp, number: warm_up, scheduled });
        }
        if self.settings.requests.is_some_and(|most| measured >= most) {
            self.end_window();
            return None;
        }
        self.begun.set((measured + 1, warm_up));
        Some(Job { phase: Phase::Measured, number: measured, scheduled })
    }

    /// Sends one request, reads its answer, and adds it up.
    async fn carry_out(&self, slot: &mut Slot, job: Job) -> Exchanged {
        // Warm-up and measured requests of all levels have prompts of their own.
        let level = u64::try_from(self.index).unwrap_or(0);
        let series = level * 2 + u64::from(job.phase == Phase::WarmUp);
        self.writer.write(series, job.number, &mut slot.request);
        self.in_flight.set(self.in_flight.get() + 1);
        let done = self.line.exchange(&mut slot.kept, &slot.request, &mut slot.reply).await;
        self.in_flight.set(self.in_flight.get().saturating_sub(1));
        let story = &slot.reply.story;
        let limit = self.settings.output_tokens;
        let counted = story.tokens.count(limit, story.finish.as_deref());
        self.sums.borrow_mut().add(job, &done, story, &counted, self.window.get());
        if let Some(recorder) = &self.recorder {
            let since = |at: u64| at.saturating_sub(self.run_began);
            let usage = counted.usage.unwrap_or_default();
            recorder.write(&RequestLine {
                kind: "request",
                run: &self.settings.run,
                level: self.index,
                load: self.load,
                phase: job.phase,
                number: job.number,
                scheduled_ns: since(job.scheduled),
                sent_ns: done.sent.map(since),
                head_ns: story.head_at.map(since),
                first_event_ns: story.first_event_at.map(since),
                first_ns: counted.first.map(since),
                last_ns: counted.last.map(since),
                ended_ns: since(done.ended),
                outcome: done.outcome,
                error: story.error.as_deref(),
                finish: story.finish.as_deref(),
                completion_tokens: counted.tokens,
                first_group_tokens: counted.in_first,
                tokens_source: counted.source,
                chunks: counted.chunks,
                usage_completion_tokens: usage.completion,
                prompt_tokens: usage.prompt,
                cached_tokens: usage.cached,
                contradictions: &counted.contradictions,
                comments: story.comments,
                connected: done.connected,
                resent: done.resent,
                output_hash: hash(&story.text),
                output: &story.text,
            });
        }
        done
    }

    /// A slot of a closed loop.
    async fn closed_slot(&self) {
        let mut slot = Slot::default();
        let mut warm_ups = 0;
        while let Some(job) = self.next(warm_ups >= self.settings.warm_up, now()) {
            let done = self.carry_out(&mut slot, job).await;
            if job.phase == Phase::WarmUp {
                warm_ups += 1;
                if warm_ups == self.settings.warm_up {
                    self.slot_warmed();
                }
            }
            if let Some(wait) = backing_off(&done, &slot.reply) {
                self.pause(wait).await;
            }
        }
    }

    fn slot_warmed(&self) {
        self.warmed.set(self.warmed.get() + 1);
        if matches!(self.load, Load::Concurrency(slots) if self.warmed.get() >= slots) {
            self.begin_window();
        }
    }

    /// Waits, or until the level is over.
    async fn pause(&self, wait: Duration) {
        if !self.stopped.get() {
            let _over = tokio::time::timeout(wait, self.over.notified()).await;
        }
    }

    /// One look at the server a second for as long as the level lasts, one at each end.
    async fn watch(&self, path: &str, authority: &str) -> Watch {
        let mut watch = Watch::default();
        let limit = Duration::from_secs(2);
        loop {
            let over = self.stopped.get();
            if self.window.get().begun() {
                let headers = &self.settings.headers;
                let page =
                    crate::fetch::fetch(&self.line.connector, authority, path, headers, limit);
                match page.await {
                    Ok((200, page)) => {
                        watch.add(now(), crate::metrics::read(&String::from_utf8_lossy(&page)));
                    }
                    Ok((status, _)) => watch.fail(format!("status {status}")),
                    Err(why) => watch.fail(why),
                }
            }
            if over {
                return watch;
            }
            let wait = if self.window.get().begun() { 1000 } else { 20 };
            self.pause(Duration::from_millis(wait)).await;
        }
    }
}

/// How long to leave a server alone that said so, or that can't be reached.
fn backing_off(done: &Exchanged, reply: &Reply) -> Option<Duration> {
    match done.outcome {
        Outcome::Refused => {
            let said = reply.head().and_then(|head| head.retry_after).unwrap_or(1);
            Some(Duration::from_secs(said).min(LONGEST_WAIT))
        }
        // Without this a server that fails at once would be hammered.
        Outcome::NoConnection | Outcome::HttpError | Outcome::NotAStream | Outcome::Malformed => {
            Some(Duration::from_millis(100))
        }
        _ => None,
    }
}

/// Runs a level to its end. `metrics` is the path of the server's metrics.
pub(crate) async fn run(
    ground: Rc<Ground>,
    metrics: Option<String>,
    authority: String,
    progress: &mut dyn FnMut(&Progress),
) -> std::io::Result<Level> {
    let mut lags = ticks::start(ticks::every(Duration::from_millis(10), now()))?;
    let lag = Rc::new(RefCell::new(Times::default()));
    let knocking = spawn_local({
        let (lag, ground) = (Rc::clone(&lag), Rc::clone(&ground));
        async move {
            while let Some(Tick { woken, .. }) = lags.recv().await {
                if ground.window.get().begun() && !ground.stopped.get() {
                    lag.borrow_mut().add(now().saturating_sub(woken), 1);
                }
            }
        }
    });
    let watching = metrics.map(|path| {
        let ground = Rc::clone(&ground);
        spawn_local(async move { ground.watch(&path, &authority).await })
    });
    let work = spawn_local({
        let ground = Rc::clone(&ground);
        async move {
            let unsent = match ground.load {
                Load::Concurrency(slots) => closed(&ground, slots).await,
                Load::Rate(rate) => open(&ground, rate).await,
            };
            ground.end_window();
            unsent
        }
    });
    let begun = now();
    let mut at_deadline = false;
    while !work.is_finished() {
        let window = ground.window.get();
        let elapsed = now().saturating_sub(if window.begun() { window.begin } else { begun });
        let wanted = nanoseconds(ground.settings.duration);
        if window.begun() && elapsed >= wanted && !at_deadline {
            at_deadline = true;
            ground.end_window();
        }
        let (requests, tokens) = ground.so_far();
        progress(&Progress {
            level: ground.index,
            load: ground.load,
            measuring: window.begun(),
            elapsed: Duration::from_nanos(elapsed),
            requests,
            tokens,
            in_flight: ground.in_flight.get(),
        });
        let left =
            if at_deadline || !window.begun() { wanted } else { wanted.saturating_sub(elapsed) };
        let step = Duration::from_nanos(left).min(Duration::from_millis(100));
        tokio::time::sleep(step.max(Duration::from_millis(1))).await;
    }
    let unsent = work.await.map_err(std::io::Error::other)??;
    knocking.abort();
    let watch = match watching {
        Some(watching) => watching.await.map_err(std::io::Error::other)?,
        None => Watch::default(),
    };
    let lag = lag.borrow();
    Ok(ground.level(unsent, watch, &lag))
}

/// A closed loop; nothing is left unsent in one.
async fn closed(ground: &Rc<Ground>, slots: u32) -> std::io::Result<u64> {
    if ground.settings.warm_up == 0 {
        ground.begin_window();
    }
    let mut all = JoinSet::new();
    for _ in 0..slots {
        let ground = Rc::clone(ground);
        all.spawn_local(async move { ground.closed_slot().await });
    }
    while let Some(ended) = all.join_next().await {
        ended.map_err(std::io::Error::other)?;
    }
    Ok(0)
}

fn until(moment: u64) -> Duration {
    Duration::from_nanos(moment.saturating_sub(now()))
}

/// Arrivals at a rate. Returns how many were due and not sent, since all slots were taken to the end.
async fn open(ground: &Rc<Ground>, rate: f64) -> std::io::Result<u64> {
    let settings = &ground.settings;
    let begin = now();
    let warm = begin.saturating_add(nanoseconds(settings.rate_warm_up));
    let end = warm.saturating_add(nanoseconds(settings.duration));
    let level = u64::try_from(ground.index).unwrap_or(0);
    let moments = ticks::arrivals(settings.arrivals, rate, settings.seed ^ level, begin, end);
    let mut ticks = ticks::start(moments)?;
    let idle: Rc<RefCell<Vec<Slot>>> = Rc::default();
    // Those that wait for a slot: moments, kept so that waiting counts.
    let waiting: Rc<RefCell<std::collections::VecDeque<u64>>> = Rc::default();
    let mut all = JoinSet::new();
    // At its own moment, and not with the first arrival behind it: the rate would come out too high.
    let opening = spawn_local({
        let ground = Rc::clone(ground);
        async move {
            ground.pause(until(warm)).await;
            if !ground.stopped.get() {
                ground.begin_window();
            }
        }
    });
    while let Some(Tick { due, .. }) = ticks.recv().await {
        if ground.stopped.get() {
            break;
        }
        if due >= warm {
            ground.begin_window();
        }
        while all.try_join_next().is_some() {}
        let slot = idle.borrow_mut().pop();
        let room = all.len() < settings.most_in_flight;
        let Some(mut slot) = slot.or_else(|| room.then(Slot::default)) else {
            waiting.borrow_mut().push_back(due);
            continue;
        };
        let (ground, idle, waiting) = (Rc::clone(ground), Rc::clone(&idle), Rc::clone(&waiting));
        all.spawn_local(async move {
            let mut next = Some(due);
            while let Some(due) = next {
                let Some(job) = ground.next(due >= warm, due) else {
                    waiting.borrow_mut().push_front(due);
                    break;
                };
                ground.carry_out(&mut slot, job).await;
                next = waiting.borrow_mut().pop_front();
            }
            idle.borrow_mut().push(slot);
        });
    }
    // The last arrival is sent like any other, and the window ends when it is to.
    ground.pause(until(end)).await;
    ground.end_window();
    opening.await.map_err(std::io::Error::other)?;
    while all.join_next().await.is_some() {}
    // Where a number of requests ends the level, those behind it are none that are missing.
    let unsent = if settings.requests.is_some() { 0 } else { waiting.borrow().len() };
    Ok(u64::try_from(unsent).unwrap_or(u64::MAX))
}

impl Ground {
    fn level(&self, unsent: u64, watch: Watch, lag: &Times) -> Level {
        let sums = self.sums.borrow();
        let window = self.window.get();
        let length = (window.begun() && window.end > window.begin && window.end != u64::MAX)
            .then(|| seconds(window.end - window.begin));
        let taken = self
            .processor_at_end
            .get()
            .map(|end| float(end.saturating_sub(self.processor_at_begin.get())));
        let per_second = |count: u64| length.map(|length| float(count) / length);
        let mut client = ClientTruth {
            send_lag_seconds: sums.send_lag.summary(),
            loop_lag_seconds: lag.summary(),
            stamp_lag_seconds: self.line.stamp_lag.borrow().summary(),
            processor_share: taken.zip(length).map(|(taken, length)| taken / 1e9 / length),
            processor_nanoseconds_per_token: taken
                .filter(|_| sums.window_tokens > 0)
                .map(|taken| taken / float(sums.window_tokens)),
            connections_opened: sums.opened,
            requests_resent: sums.resent,
            lagged: None,
        };
        client.lagged = crate::verdict::lagged(&client, sums.inter.quantile(0.5), self.load);
        let level = Level {
            load: self.load,
            window_seconds: length,
            warm_up_requests: sums.warm_up,
            requests: sums.requests.clone(),
            requests_measured: sums.measured,
            requests_unsent: unsent,
            errors: sums.errors.clone(),
            concurrency_mean: length.map(|length| seconds(sums.in_flight) / length),
            window_tokens: sums.window_tokens,
            tokens_per_second: per_second(sums.window_tokens),
            requests_per_second: per_second(sums.complete_within),
            output_tokens: sums.output_tokens,
            prompt_tokens: sums.prompt_tokens,
            cached_tokens: sums.cached_tokens,
            token_sources: sums.sources.clone(),
            chunks: sums.chunks,
            finish_reasons: sums.finish.clone(),
            contradictions: sums.contradictions.clone(),
            first_token_seconds: sums.first.summary(),
            response_first_token_seconds: sums.response_first.summary(),
            inter_token_seconds: sums.inter.summary(),
            time_per_output_token_seconds: sums.per_token.summary(),
            request_seconds: sums.whole.summary(),
            server: watch.truth(),
            client,
        };
        self.record(&level, &sums);
        level
    }

    /// The last line of a level.
    fn record(&self, level: &Level, sums: &Sums) {
        let Some(recorder) = &self.recorder else { return };
        let findings = crate::verdict::findings(level, self.settings.ignore_eos);
        recorder.write(&LevelLine {
            kind: "level",
            run: &self.settings.run,
            level: self.index,
            load: self.load,
            window_seconds: level.window_seconds,
            window_tokens: level.window_tokens,
            client_lagged: level.client.lagged.as_deref(),
            findings: findings
                .into_iter()
                .filter(|finding| finding.weight >= Weight::Warning)
                .map(|finding| finding.text)
                .collect(),
            inter_token_buckets: sums.inter.buckets(),
            first_token_buckets: sums.first.buckets(),
        });
    }
}
