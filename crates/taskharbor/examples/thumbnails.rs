//! Thumbnails for a folder of images: a group of chains, each of which reads an image and becomes
//! a group of sizes; and a contact sheet when the last of them is done.
//!
//! The images are PPM files, which are a header and pixels, so that scaling them needs no library.
//!
//! Run it with `cargo run --example thumbnails`.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use taskharbor::{
    BoxError, Client, Context, Flow, Handlers, Job, JobError, JobResult, Options, Worker, blocking,
};

/// Scales one image to one width.
#[derive(Clone, Serialize, Deserialize, Job)]
#[job(type = "photo:scale", queue = "images", output = Thumb)]
struct Scale {
    from: PathBuf,
    to: PathBuf,
    width: usize,
}

/// Puts the thumbnails of one width below each other.
#[derive(Serialize, Deserialize, Job)]
#[job(type = "photo:sheet", queue = "images", input = Vec<Vec<Thumb>>, output = Thumb)]
struct Sheet {
    to: PathBuf,
    width: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct Thumb {
    file: PathBuf,
    width: usize,
    height: usize,
}

/// Pixels of three bytes each, row by row.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    fn read(path: &Path) -> Result<Self, BoxError> {
        let bytes = fs::read(path)?;
        let header_end = bytes.windows(5).position(|it| it == b"\n255\n").ok_or("no header")?;
        let header = std::str::from_utf8(&bytes[..header_end])?;
        let mut words = header.split_ascii_whitespace();
        if words.next() != Some("P6") {
            return Err("this is no PPM file".into());
        }
        let mut number = || words.next().ok_or("no size")?.parse().map_err(BoxError::from);
        let (width, height): (usize, usize) = (number()?, number()?);
        let pixels = bytes[header_end + 5..].to_vec();
        if width.checked_mul(height).and_then(|it| it.checked_mul(3)) != Some(pixels.len()) {
            return Err("there are more or fewer pixels than the header says".into());
        }
        Ok(Self { width, height, pixels })
    }

    /// Writes a temporary file and renames it. So a half-written file is never visible, and writing is
    /// idempotent.
    fn write(&self, path: &Path) -> Result<(), BoxError> {
        let mut bytes = format!("P6\n{} {}\n255\n", self.width, self.height).into_bytes();
        bytes.extend_from_slice(&self.pixels);
        let part = path.with_extension("part");
        fs::write(&part, bytes)?;
        Ok(fs::rename(part, path)?)
    }

    /// Every pixel of the result is the mean of those it stands for.
    fn scaled(&self, width: usize) -> Self {
        let width = width.clamp(1, self.width);
        let height = (self.height * width / self.width).max(1);
        let mut pixels = Vec::with_capacity(width * height * 3);
        for y in 0..height {
            let rows = y * self.height / height..((y + 1) * self.height).div_ceil(height);
            for x in 0..width {
                let columns = x * self.width / width..((x + 1) * self.width).div_ceil(width);
                let mut sums = [0_usize; 3];
                for row in rows.clone() {
                    for column in columns.clone() {
                        let at = (row * self.width + column) * 3;
                        for (sum, byte) in sums.iter_mut().zip(&self.pixels[at..at + 3]) {
                            *sum += usize::from(*byte);
                        }
                    }
                }
                let count = rows.len() * columns.len();
                pixels.extend(sums.map(|sum| u8::try_from(sum / count).unwrap_or(u8::MAX)));
            }
        }
        Self { width, height, pixels }
    }
}

async fn scale(job: Scale, _: Context) -> JobResult<Thumb> {
    // Blocking work must not occupy the threads that run other tasks.
    let thumb = blocking(move || -> JobResult<Thumb> {
        // A file that is no image will not become one.
        let image = Image::read(&job.from).map_err(JobError::unrecoverable)?.scaled(job.width);
        image.write(&job.to)?;
        Ok(Thumb { file: job.to, width: image.width, height: image.height })
    });
    thumb.await
}

async fn sheet(job: Sheet, cx: Context) -> JobResult<Thumb> {
    let thumbs = cx.input(&job)?; // of every image, the sizes in their order
    let mut sheet = Image { width: job.width, height: 0, pixels: Vec::new() };
    for thumb in thumbs.into_iter().flatten().filter(|thumb| thumb.width == job.width) {
        let image = Image::read(&thumb.file)?;
        sheet.height += image.height;
        sheet.pixels.extend(image.pixels);
    }
    sheet.write(&job.to)?;
    Ok(Thumb { file: job.to, width: sheet.width, height: sheet.height })
}

/// A chord over all images of a folder, each a group of its sizes.
fn thumbnails(folder: &Path, names: &[String], widths: [usize; 2]) -> Flow<Thumb> {
    let images = names.iter().map(|name| {
        let sizes = widths.map(|width| {
            let (from, to) = (folder.join(name), folder.join(format!("{width}-{name}")));
            Scale { from, to, width }.with(Options::new().label(format!("{name} at {width}")))
        });
        Flow::group(sizes)
    });
    Flow::chord(images, Sheet { to: folder.join("sheet.ppm"), width: widths[0] })
}

/// Gradients, each of another size.
fn generate(folder: &Path, count: usize) -> Result<Vec<String>, BoxError> {
    fs::create_dir_all(folder)?;
    let image = |n: usize| {
        let (width, height) = (200 + 10 * n, 100 + 5 * n);
        let pixel = |at: usize| {
            let (x, y) = (at % width, at / width);
            [x * 255 / width, y * 255 / height, n * 255 / count]
        };
        let bytes = (0..width * height).flat_map(pixel);
        let pixels = bytes.map(|it| u8::try_from(it).unwrap_or(u8::MAX)).collect();
        let name = format!("{n}.ppm");
        Image { width, height, pixels }.write(&folder.join(&name)).map(|()| name)
    };
    (0..count).map(image).collect()
}

async fn run(folder: &Path) -> Result<(), BoxError> {
    let names = generate(folder, 12)?;
    let driver = taskharbor::connect("memory:").await?;
    let handlers = Handlers::new().on(scale).on(sheet);
    let worker = Worker::builder(&driver).handlers(handlers).queue("images", 4).build()?.start();
    let client = Client::new(&driver);
    let handle = client.start(thumbnails(folder, &names, [64, 128])).name("thumbnails").await?;
    let sheet = handle.wait().await?;
    println!("{sheet:?}\n{}", handle.tree(100).await?);
    let image = Image::read(&sheet.file)?;
    assert_eq!((image.width, image.height), (64, sheet.height));
    assert!(names.iter().all(|name| folder.join(format!("128-{name}")).exists()));
    // The first image has no blue, and its left edge next to no red.
    assert!(image.pixels[0] < 8 && image.pixels[2] == 0);
    worker.shutdown().await?;
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    let folder = std::env::temp_dir().join(format!("taskharbor-thumbnails-{}", std::process::id()));
    let outcome = run(&folder).await;
    fs::remove_dir_all(&folder)?;
    outcome
}

#[test]
fn it_runs() {
    main().unwrap();
}
