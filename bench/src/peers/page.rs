//! The text of the page around its tables.

/// What stands before the facts of the run.
pub(crate) const INTRODUCTION: &str = "\
# Benchmarks against other systems

TaskHarbor compared with other job queues on the same machine, the same server and the same jobs. The page is generated
from one run with `cargo xtask bench peers report`; [the run](benchmarks/run.jsonl) has every measurement as one line of
JSON. [Benchmarks](guides/benchmarks.md) has what TaskHarbor is measured against otherwise.

The figures are rates of one machine with two cores for jobs that do nothing. Compare systems within a row, and expect
other rates elsewhere. The jobs of an application take time, so a faster queue is rarely a faster application.
";

/// How it was measured.
pub(crate) const METHOD: &str = "\
## Method

- Each system is a program of its own that uses its library as an application does (`bench/peers`). All of them are
  driven through the same line protocol, also TaskHarbor. They have two threads, except the TypeScript ones.
- All sides use one private PostgreSQL server with `fsync`, `synchronous_commit` and `full_page_writes` on. Each
  measurement starts new processes on a new database, after a checkpoint.
- The sides of a part take turns in rounds, and each round begins with another side. A cell is the median of the rounds
  with half the range.
- Before and after each round, a gate measures fixed processor work and a fixed number of commits. A round whose gate
  is slower than the best one by more than the stated share is repeated. If it stays noisy, it counts only if no other
  round of the part was quiet, and its figures are marked with ‡.
- A drain that reaches its time limit is stopped, and its figures are those so far: †.
- *Drain* ends when all jobs are recorded as finished. *Enqueue to start* is measured on an idle worker, from the call
  that enqueues until the handler runs, in one process. *Processor time of the server* is that of all its processes.
  *Write-ahead log per job* covers the whole life of a job in its best setting: enqueue, run, removal if the system
  keeps finished jobs, and vacuum. It is measured with `full_page_writes` off, since images of pages depend on when
  checkpoints fall. *Peak memory* includes the enqueueing in bulk.
- On SQLite, files are in WAL mode with `synchronous = FULL`, except those of worklane: it sets `NORMAL`, which does not
  wait for the disk at each commit, and its figures are not comparable with the others. The `setup` of apalis would
  switch `synchronous` off, so its migrations are run without it.

Reproduce it on Linux with `cargo xtask bench peers`, or a part with `cargo xtask bench peers drain jobs=20000`. The
systems in TypeScript need `npm`, which fetches the version of Node.js that they require.

River is measured in Rust. The Go version is not: its modules could not be fetched where this page was made. Both use
the same tables.
";

/// What differs beside speed.
pub(crate) const GUARANTEES: &str = "\
## What differs in guarantees

A comparison of speed alone is unfair to systems that do more with each job. Read from the code of the versions above:
";

/// How each side is set up.
pub(crate) const SETTINGS: &str = "\
## Settings

The best setting follows the documents and the source of each system. Several settings were compared for TaskHarbor, for
graphile_worker and for the batches of apalis on SQLite. The other systems may be faster with settings that were not
tried.
";
