//! Thumbnails for a folder of images. Each image becomes a group of jobs, one for each size. When the last of them is
//! done, one more job makes a contact sheet.
//!
//! Run it with `cargo run -p taskharbor --example thumbnails`. It draws twelve images and prints where the thumbnails
//! are, so that you can look at them. Images are BMP files, which are a header and pixels, so this example needs no
//! library for images. In a program of your own, use the crate `image` in place of the type `Image`.
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

/// Pixels of three bytes each (blue, green, red), row by row.
struct Image {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Image {
    const HEADER: usize = 54;

    /// The bytes of a row in a file, where they are a multiple of four.
    const fn row_bytes(width: usize) -> usize {
        (width * 3).next_multiple_of(4)
    }

    /// Reads a file that [`Image::write`] has written.
    fn read(path: &Path) -> Result<Self, BoxError> {
        let bytes = fs::read(path)?;
        let number = |at: usize| -> Result<usize, BoxError> {
            let bytes = bytes.get(at..at + 4).ok_or("the file is too short")?;
            Ok(usize::try_from(u32::from_le_bytes(bytes.try_into()?))?)
        };
        if !bytes.starts_with(b"BM") {
            return Err("this is not a BMP file".into());
        }
        let (width, height) = (number(18)?, number(22)?);
        let rows = bytes.get(Self::HEADER..).unwrap_or_default();
        let row_bytes = Self::row_bytes(width);
        if width == 0 || row_bytes.checked_mul(height) != Some(rows.len()) {
            return Err("the file has more or fewer pixels than its header says".into());
        }
        // The last row comes first.
        let rows = rows.chunks(row_bytes).rev().flat_map(|row| &row[..width * 3]);
        Ok(Self { width, height, pixels: rows.copied().collect() })
    }

    /// Writes another file and renames it: a reader never sees half an image, and writing is idempotent.
    fn write(&self, path: &Path) -> Result<(), BoxError> {
        let row_bytes = Self::row_bytes(self.width);
        let size = Self::HEADER + row_bytes * self.height;
        let mut bytes = b"BM".to_vec();
        let fields = [size, 0, Self::HEADER, 40, self.width, self.height, (24 << 16) + 1];
        for field in fields.into_iter().chain([0; 6]) {
            bytes.extend(u32::try_from(field)?.to_le_bytes());
        }
        for row in self.pixels.chunks(self.width * 3).rev() {
            bytes.extend_from_slice(row);
            bytes.resize(bytes.len() + row_bytes - row.len(), 0);
        }
        let part = path.with_extension("part");
        fs::write(&part, bytes)?;
        Ok(fs::rename(part, path)?)
    }

    /// Each pixel of the result is the mean of the pixels in its place.
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
    // Scaling keeps its thread busy, so it runs on a thread of its own.
    let thumb = blocking(move || -> JobResult<Thumb> {
        // A retry does not help if the file is not an image.
        let image = Image::read(&job.from).map_err(JobError::unrecoverable)?.scaled(job.width);
        image.write(&job.to)?;
        Ok(Thumb { file: job.to, width: image.width, height: image.height })
    });
    thumb.await
}

async fn sheet(job: Sheet, cx: Context) -> JobResult<Thumb> {
    let thumbs = cx.input(&job)?; // for each image, its sizes in their order
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
    Flow::chord(images, Sheet { to: folder.join("sheet.bmp"), width: widths[0] })
}

/// Draws gradients, each of another size.
fn generate(folder: &Path, count: usize) -> Result<Vec<String>, BoxError> {
    fs::create_dir_all(folder)?;
    let image = |n: usize| {
        let (width, height) = (200 + 10 * n, 100 + 5 * n);
        let pixel = |at: usize| {
            let (x, y) = (at % width, at / width);
            [n * 255 / count, y * 255 / height, x * 255 / width]
        };
        let bytes = (0..width * height).flat_map(pixel);
        let pixels = bytes.map(|it| u8::try_from(it).unwrap_or(u8::MAX)).collect();
        let name = format!("{n}.bmp");
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
    println!("{}", handle.tree(100).await?);
    println!("the contact sheet: {}", sheet.file.display());
    let image = Image::read(&sheet.file)?;
    assert_eq!((image.width, image.height), (64, sheet.height));
    assert!(names.iter().all(|name| folder.join(format!("128-{name}")).exists()));
    // The first image has no blue, and nearly no red at its left edge.
    assert!(image.pixels[0] == 0 && image.pixels[2] < 8);
    worker.shutdown().await?;
    Ok(())
}

#[taskharbor::main]
async fn main() -> Result<(), BoxError> {
    run(&std::env::temp_dir().join("taskharbor-thumbnails")).await
}

#[test]
fn it_makes_thumbnails_and_a_sheet() {
    let folder = std::env::temp_dir().join(format!("taskharbor-thumbnails-{}", std::process::id()));
    taskharbor::block_on(run(&folder)).unwrap();
    // The rows of this image are padded in the file.
    assert!(!(210 * 3_usize).is_multiple_of(4));
    let image = Image::read(&folder.join("1.bmp")).unwrap();
    assert_eq!((image.width, image.height, image.pixels.len()), (210, 105, 210 * 105 * 3));
    fs::remove_dir_all(&folder).unwrap();
}
