//! Stores, runtimes and application code at their worst.

mod context;
mod end;
mod interference;
mod judge;
mod lease;
mod limit;
mod outcome;
mod own_doing;
mod simulation;

use std::{
    collections::HashSet,
    fmt,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    Admin, AnyDriver, Client, Context, DriverError, Event, Exponential, Failed, Flow, Handlers,
    Job, JobError, JobId, JobResult, Outcome, RetryPolicy, Running, State, Worker, WorkerError,
};
use taskharbor_core::{
    driver::{ExtendLeases, Outputs, Reserve, Settle, Transition},
    job::JobRecord,
};
use taskharbor_memory::MemoryDriver;
use taskharbor_testkit::{Answer, Call, Hook, Intercept, Next};

use crate::faulty_store::{Fault, FaultyStore, Op};
use crate::rig::{DONE, LEASE, SECOND, Work, WorkerRig, handler, work};

use interference::*;
