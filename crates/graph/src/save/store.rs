//! Where the weights of graphs are stored.

use super::digest::Digester;
use super::link::{LinkedFile, link, link_name};
use super::meter::{Meter, Written};
use super::report::SaveReport;
use super::staged::{Staged, temporary};
use crate::proto::StringStringEntryProto;
use crate::{Error, MappedFile, Model, Result, Weight, WeightFile, weight_files};
use bytes::Bytes;
use indexmap::IndexMap;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tileforge_contract::CHECKPOINTS_KEY;
use tileforge_files::{Digests, stated_by_hub_cache, unfinished};

/// Tensors of fewer bytes are stored in the graph itself. Shapes and axes must be in the graph, because operators read
/// them as constants; biases may be.
const EXTERNAL_FROM: u64 = 1024;
/// Tensors begin at multiples of this in a weight file, so that any vector load is aligned.
const ALIGNMENT: u64 = 64;
/// From this size on, a range of a checkpoint is copied by the system instead of through a buffer.
const COPIED_BY_SYSTEM_FROM: u64 = 64 << 10;
const PAGE: u64 = 4096;
const PAGE_ALIGNED_FROM: u64 = 1 << 20;
/// Where weights go while graphs are written.
pub(super) struct WeightStore<'a> {
    pub(super) folder: &'a Path,
    /// Name of the weight file.
    pub(super) name: String,
    pub(super) inline: bool,
    /// With a prefix, mapped files are linked as `PREFIX.FILE-NAME`.
    pub(super) link_prefix: Option<String>,
    /// The known digests of linked files; `None` if linked files are not digested.
    pub(super) digests: Option<&'a Digests>,
    /// Whether the graph states the digest of the weight file.
    pub(super) states_weights: bool,
    digester: Option<Digester>,
    file: Option<BufWriter<unfinished::File>>,
    position: u64,
    placed: HashMap<Weight, (String, u64)>,
    links: IndexMap<Arc<MappedFile>, String>,
    pub(super) meter: Meter<'a>,
}

impl<'a> WeightStore<'a> {
    pub(super) fn new(folder: &'a Path, name: String, progress: &'a mut dyn FnMut(Written)) -> Self {
        let (inline, link_prefix, digests, states_weights, digester) = (false, None, None, false, None);
        WeightStore {
            folder,
            name,
            inline,
            link_prefix,
            digests,
            states_weights,
            digester,
            file: None,
            position: 0,
            placed: HashMap::new(),
            links: IndexMap::new(),
            meter: Meter::new(progress),
        }
    }

    /// Bytes of the weights that are written, each once: without weights that stay in checkpoints, and without small
    /// weights that every graph holds itself.
    pub(super) fn bytes_to_write(&self, models: &[(&Model, &Path)]) -> u64 {
        let weights = models.iter().flat_map(|(model, _)| model.weights.values());
        if self.inline {
            return weights.map(Weight::byte_length).sum();
        }
        let written = weights.filter(|weight| weight.byte_length() >= EXTERNAL_FROM && self.linked(weight).is_none());
        written.collect::<HashSet<_>>().into_iter().map(Weight::byte_length).sum()
    }

    /// The checkpoint that the graph points into for this weight, and the offset in it; `None` for a weight that must
    /// be written.
    fn linked<'w>(&self, weight: &'w Weight) -> Option<(&'w Arc<MappedFile>, u64)> {
        // A tensor that does not begin at a multiple of its element's size would be read misaligned.
        let is_aligned = |(_, offset): &(_, u64)| offset.is_multiple_of(weight.data_type().size() as u64);
        weight.file_range().filter(|_| self.link_prefix.is_some()).filter(is_aligned)
    }

    /// The bytes of a weight that is stored in the graph.
    pub(super) fn inlined(&mut self, weight: &Weight) -> Result<Bytes> {
        let mut bytes = Vec::with_capacity(usize::try_from(weight.byte_length()).unwrap_or_default());
        weight.stream(&mut |piece| {
            bytes.extend_from_slice(piece);
            if self.inline {
                self.meter.add(piece.len() as u64);
            }
            Ok(())
        })?;
        Ok(bytes.into())
    }

    /// Stores a weight and returns its place as `(file name, offset)`; `None` for a weight that belongs in the graph.
    pub(super) fn place(&mut self, weight: &Weight) -> Result<Option<(String, u64)>> {
        if self.inline || weight.byte_length() < EXTERNAL_FROM {
            return Ok(None);
        }
        if let Some(place) = self.placed.get(weight) {
            return Ok(Some(place.clone()));
        }
        let place = match (&self.link_prefix, self.linked(weight)) {
            (Some(prefix), Some((file, offset))) => {
                let name = link_name(self.folder, prefix, file, &self.links);
                self.links.insert(file.clone(), name.clone());
                (name, offset)
            }
            _ => (self.name.clone(), self.append(weight)?),
        };
        self.placed.insert(weight.clone(), place.clone());
        Ok(Some(place))
    }

    fn append(&mut self, weight: &Weight) -> Result<u64> {
        let path = self.folder.join(&self.name);
        let fail = |e: std::io::Error| Error::file(&path, "write the weights", e);
        let writer = match &mut self.file {
            Some(writer) => writer,
            None => {
                if self.states_weights {
                    self.digester = Some(Digester::start().map_err(fail)?);
                }
                self.file.insert(BufWriter::with_capacity(1 << 20, temporary(self.folder)?))
            }
        };
        let (meter, digester) = (&mut self.meter, self.digester.as_ref());
        let stream = |writer: &mut BufWriter<unfinished::File>, meter: &mut Meter<'_>| {
            weight.stream(&mut |piece| {
                writer.write_all(piece).map_err(fail)?;
                digester.into_iter().for_each(|digester| digester.bytes(piece));
                meter.add(piece.len() as u64);
                Ok(())
            })
        };
        let length = weight.byte_length();
        let offset = self.position.next_multiple_of(if length >= PAGE_ALIGNED_FROM { PAGE } else { ALIGNMENT });
        let padding = [0; PAGE as usize];
        let padding = &padding[..(offset - self.position) as usize];
        writer.write_all(padding).map_err(fail)?;
        digester.into_iter().for_each(|digester| digester.bytes(padding));
        match weight.file_range().filter(|_| length >= COPIED_BY_SYSTEM_FROM) {
            Some((file, start)) => {
                // The system appends at the end of the file, so the buffer must be empty.
                writer.flush().map_err(fail)?;
                match file.append_to(start, length, writer.get_ref().as_file(), &mut |bytes| meter.add(bytes)) {
                    Err(error) if error.kind() == std::io::ErrorKind::Unsupported => stream(writer, meter)?,
                    done => {
                        done.map_err(fail)?;
                        digester.into_iter().for_each(|digester| digester.range(file, start, length));
                    }
                }
            }
            None => stream(writer, meter)?,
        }
        self.position = offset + length;
        Ok(offset)
    }

    /// The metadata about the graph's weight files, if there are any. The weight file is already complete: it belongs
    /// to one graph.
    pub(super) fn weight_files(&mut self) -> Result<Option<StringStringEntryProto>> {
        if let Some(digests) = self.digests.filter(|_| self.links.len() > 1) {
            let linked = self.links.keys().map(|file| file.path());
            let linked: Vec<PathBuf> =
                linked.filter(|path| stated_by_hub_cache(path).is_none()).map(Path::to_owned).collect();
            digests.prepare(&linked).map_err(|(path, error)| Error::file(&path, "read", error))?;
        }
        let records = self.links.iter().map(|(file, name)| WeightFile::of_checkpoint(name.clone(), file, self.digests));
        let mut records = records.collect::<Result<Vec<_>>>()?;
        if let Some(digester) = self.digester.take() {
            let failed = || Error::file(&self.folder.join(&self.name), "digest", "the thread for it has ended");
            let sha256 = digester.finish().ok_or_else(failed)??;
            records.push(WeightFile { file: self.name.clone(), bytes: self.position, sha256: Some(sha256) });
        }
        if records.is_empty() {
            return Ok(None);
        }
        Ok(Some(StringStringEntryProto {
            key: Some(CHECKPOINTS_KEY.into()),
            value: Some(weight_files::to_json(&records)?),
        }))
    }

    /// Finishes the weight file and the links. They are renamed before the graphs that point to them.
    pub(super) fn finish(mut self, replaced: &BTreeSet<String>) -> Result<(Vec<(Staged, PathBuf)>, SaveReport)> {
        let (mut staged, mut report) = (Vec::new(), SaveReport::default());
        if let Some(writer) = self.file {
            let path = self.folder.join(&self.name);
            let file = writer.into_inner().map_err(|e| Error::file(&path, "write the weights", e.error()))?;
            staged.push((Staged::File(file), path.clone()));
            report.weights = Some((path, self.position));
        }
        for (file, name) in self.links {
            let path = self.folder.join(&name);
            let (link, method) = link(&file, &path, replaced.contains(&name), &mut self.meter)?;
            staged.extend(link.map(|link| (link, path.clone())));
            report.linked.push(LinkedFile { path, method });
        }
        Ok((staged, report))
    }
}
