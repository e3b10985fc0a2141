//! Reads pickles that hold tensors and containers. Nothing is run: a pickle can name constructors, and every name that
//! is not one of [`globals`](super::globals) is refused.
//!
//! The format is defined by Python's `pickletools.py`. Values live in one list and refer to each other by their place
//! in it, so that neither nesting nor a cycle costs more than that list.

use super::globals::{Global, StorageClass, allowed};
use std::collections::HashMap;
use std::fmt;
use tileforge_graph::DataType;

/// The largest number of values of a pickle, and of entries of its stack and of its memo. A checkpoint needs about
/// thirty values for each tensor.
const MOST_VALUES: usize = 4_000_000;
/// The largest number of dimensions of a tensor. All training programs use fewer.
const MOST_DIMENSIONS: usize = 64;
/// The largest number of open collections. Python's own writer nests them by recursion, which it limits to 1000.
const DEEPEST_NESTING: usize = 1000;

/// A value's place in the list of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Id(u32);

/// A value of a pickle. Texts are parts of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value<'a> {
    None,
    Boolean(bool),
    Integer(i64),
    /// An integer of more than eight bytes, in little-endian two's complement.
    LongInteger(&'a [u8]),
    Text(&'a [u8]),
    Tuple(Vec<Id>),
    List(Vec<Id>),
    Dictionary(Vec<(Id, Id)>),
    /// A set that may still receive items.
    Set,
    Global(Global),
    Storage(Box<Storage<'a>>),
    Tensor(Box<View<'a>>),
    /// A tensor that is not an array of numbers.
    OtherTensor(&'static str),
    /// A value that no tensor needs, such as a number with a fraction or a device.
    Other(&'static str),
}

/// A reference to the data of tensors, which is outside of the pickle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Storage<'a> {
    pub(super) key: &'a str,
    pub(super) class: StorageClass,
    /// Number of elements of the whole storage.
    pub(super) elements: u64,
    /// First element, if the reference is to a part of the storage. Files from before PyTorch 1.6 have such parts.
    pub(super) first: u64,
}

/// A tensor: a view of a storage.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View<'a> {
    pub(super) storage: Storage<'a>,
    /// The element type; `None` for one that no graph can hold.
    pub(super) data_type: Option<DataType>,
    /// First element, counted from the storage's first.
    pub(super) first: u64,
    pub(super) dims: Vec<usize>,
    /// In elements.
    pub(super) strides: Vec<usize>,
    /// PyTorch's negative bit: the values are those of the storage with the other sign. `torch.imag` of a conjugated
    /// tensor is such a view.
    pub(super) is_negated: bool,
}

/// The values of one pickle.
#[derive(Debug)]
pub(super) struct Pickle<'a> {
    values: Vec<Value<'a>>,
    root: Id,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle at the beginning of `bytes`. Returns it with the bytes that follow it.
    ///
    /// # Errors
    /// What is damaged, not allowed or beyond a limit, and where.
    pub(super) fn read(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), String> {
        let mut machine = Machine {
            bytes,
            position: 0,
            values: Vec::new(),
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            collected: 0,
        };
        loop {
            let at = machine.position;
            match machine.step() {
                Ok(None) => {}
                Ok(Some(root)) => {
                    let Machine { values, position, .. } = machine;
                    return Ok((Pickle { values, root }, &bytes[position..]));
                }
                Err(reason) => return Err(format!("byte {at} of the pickle: {reason}")),
            }
        }
    }

    pub(super) fn root(&self) -> &Value<'a> {
        self.value(self.root)
    }

    pub(super) fn value(&self, id: Id) -> &Value<'a> {
        // An `Id` is made together with its value.
        &self.values[id.0 as usize]
    }

    /// All values, each at its [`Id::place`].
    pub(super) fn values(&self) -> &[Value<'a>] {
        &self.values
    }
}

impl Id {
    pub(super) fn place(self) -> usize {
        self.0 as usize
    }
}

/// The kind of a value, for error messages.
impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Value::Integer(value) => return write!(f, "the integer {value}"),
            Value::None => "None",
            Value::Boolean(_) => "a truth value",
            Value::LongInteger(_) => "an integer",
            Value::Text(_) => "a text",
            Value::Tuple(_) => "a tuple",
            Value::List(_) => "a list",
            Value::Dictionary(_) => "a dictionary",
            Value::Set => "a set",
            Value::Global(_) => "a class",
            Value::Storage(_) => "a storage",
            Value::Tensor(_) => "a tensor",
            Value::OtherTensor(kind) | Value::Other(kind) => kind,
        })
    }
}

/// The state of the pickle machine.
struct Machine<'a> {
    bytes: &'a [u8],
    position: usize,
    values: Vec<Value<'a>>,
    stack: Vec<Id>,
    /// Heights of the stack where collections were opened.
    marks: Vec<usize>,
    memo: HashMap<u32, Id>,
    /// Items of all collections together. A collection can be copied, so the file's length does not limit them.
    collected: usize,
}

impl<'a> Machine<'a> {
    /// Executes one opcode. Returns the pickle's value at its end.
    fn step(&mut self) -> Result<Option<Id>, String> {
        let opcode = self.byte()?;
        match opcode {
            // PROTO, FRAME
            0x80 => {
                let version = self.byte()?;
                if version > 5 {
                    return Err(format!("expected at most protocol 5, found {version}"));
                }
            }
            0x95 => drop(self.take(8)?),
            // STOP
            b'.' => return self.pop().map(Some),
            // MARK
            b'(' if self.marks.len() >= DEEPEST_NESTING => {
                return Err(format!("more than {DEEPEST_NESTING} open collections"));
            }
            b'(' => self.marks.push(self.stack.len()),
            // NONE, NEWTRUE, NEWFALSE
            b'N' => self.push(Value::None)?,
            0x88 | 0x89 => self.push(Value::Boolean(opcode == 0x88))?,
            // BININT, BININT1, BININT2, BINFLOAT
            b'J' => {
                let value = i32::from_le_bytes(self.array()?);
                self.push(Value::Integer(value.into()))?;
            }
            b'K' => {
                let value = self.byte()?;
                self.push(Value::Integer(value.into()))?;
            }
            b'M' => {
                let value = u16::from_le_bytes(self.array()?);
                self.push(Value::Integer(value.into()))?;
            }
            b'G' => {
                self.take(8)?;
                self.push(Value::Other("a number with a fraction"))?;
            }
            // LONG1, LONG4
            0x8a => {
                let length = self.byte()?;
                self.long(length.into())?;
            }
            0x8b => {
                let length = self.length::<4>()?;
                self.long(length)?;
            }
            // SHORT_BINSTRING, SHORT_BINBYTES, SHORT_BINUNICODE
            b'U' | b'C' | 0x8c => {
                let length = self.byte()?;
                self.text(length.into())?;
            }
            // BINSTRING, BINBYTES, BINUNICODE
            b'T' | b'B' | b'X' => {
                let length = self.length::<4>()?;
                self.text(length)?;
            }
            // BINUNICODE8, BINBYTES8
            0x8d | 0x8e => {
                let length = self.length::<8>()?;
                self.text(length)?;
            }
            // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
            b')' => self.push(Value::Tuple(Vec::new()))?,
            b't' => {
                let items = self.pop_to_mark()?;
                self.collect(items.len())?;
                self.push(Value::Tuple(items))?;
            }
            0x85..=0x87 => {
                let start = self.start_of(usize::from(opcode - 0x84))?;
                let items = self.stack.split_off(start);
                self.push(Value::Tuple(items))?;
            }
            // EMPTY_LIST, APPEND, APPENDS
            b']' => self.push(Value::List(Vec::new()))?,
            b'a' => {
                let item = self.pop()?;
                self.append(vec![item])?;
            }
            b'e' => {
                let items = self.pop_to_mark()?;
                self.append(items)?;
            }
            // EMPTY_DICT, SETITEM, SETITEMS
            b'}' => self.push(Value::Dictionary(Vec::new()))?,
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.insert(&[key, value])?;
            }
            b'u' => {
                let items = self.pop_to_mark()?;
                self.insert(&items)?;
            }
            // EMPTY_SET, ADDITEMS, FROZENSET
            0x8f => self.push(Value::Set)?,
            0x90 => {
                self.pop_to_mark()?;
                let set = self.top()?;
                self.expect(set, "a set", |value| matches!(value, Value::Set).then_some(()))?;
            }
            0x91 => {
                self.pop_to_mark()?;
                self.push(Value::Other("a frozen set"))?;
            }
            // BINGET, LONG_BINGET
            b'h' => {
                let index = self.byte()?;
                self.recall(index.into())?;
            }
            b'j' => {
                let index = u32::from_le_bytes(self.array()?);
                self.recall(index)?;
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => {
                let index = self.byte()?;
                self.remember(index.into())?;
            }
            b'r' => {
                let index = u32::from_le_bytes(self.array()?);
                self.remember(index)?;
            }
            0x94 => self.remember(self.memo.len() as u32)?,
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                let (module, name) = (self.string(module)?, self.string(name)?);
                self.global(module, name)?;
            }
            // INST names a class and calls it.
            b'i' => {
                let (module, name) = (self.line()?, self.line()?);
                return Err(refused(module, name));
            }
            // REDUCE, NEWOBJ, BUILD, BINPERSID
            b'R' | 0x81 => {
                let (arguments, function) = (self.pop()?, self.pop()?);
                let value = self.call(function, arguments)?;
                if let Value::Dictionary(copied) = &value {
                    self.collect(2 * copied.len())?;
                }
                self.push(value)?;
            }
            b'b' => {
                self.pop()?;
                let of = self.top()?;
                // Attributes of a dictionary, such as the versions of a network's layers. They change no tensor.
                self.expect(of, "attributes of a dictionary", |value| {
                    matches!(value, Value::Dictionary(_)).then_some(())
                })?;
            }
            b'Q' => {
                let id = self.pop()?;
                let storage = self.storage(id)?;
                self.push(Value::Storage(Box::new(storage)))?;
            }
            other => {
                return Err(format!("the opcode {} is not one that tensors need; it was not run", opcode_name(other)));
            }
        }
        Ok(None)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let rest = &self.bytes[self.position..];
        let taken = rest.get(..length).ok_or_else(|| {
            format!("expected {length} more bytes, found {}: the file is truncated; download it again", rest.len())
        })?;
        self.position += length;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.array().map(|[byte]| byte)
    }

    /// A length of `N` bytes. One that is larger than memory is larger than the file.
    fn length<const N: usize>(&mut self) -> Result<usize, String> {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(self.take(N)?);
        Ok(usize::try_from(u64::from_le_bytes(bytes)).unwrap_or(usize::MAX))
    }

    /// The text up to the end of the line.
    fn line(&mut self) -> Result<&'a str, String> {
        let rest = &self.bytes[self.position..];
        let length = rest.iter().position(|byte| *byte == b'\n').ok_or("expected a line, found the end of the file")?;
        self.position += length + 1;
        std::str::from_utf8(&rest[..length]).map_err(|_| "expected a name, found no text".into())
    }

    fn push(&mut self, value: Value<'a>) -> Result<(), String> {
        if self.values.len() >= MOST_VALUES || self.stack.len() >= MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values; a checkpoint has far fewer"));
        }
        let id = Id(self.values.len() as u32);
        self.values.push(value);
        self.stack.push(id);
        Ok(())
    }

    /// The height of the stack below its last `count` values, which must be above the last mark.
    fn start_of(&self, count: usize) -> Result<usize, String> {
        let floor = self.marks.last().copied().unwrap_or(0);
        let start = self.stack.len().checked_sub(count).filter(|start| *start >= floor);
        start.ok_or_else(|| "a value is missing: the file is damaged".into())
    }

    fn pop(&mut self) -> Result<Id, String> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn top(&self) -> Result<Id, String> {
        let start = self.start_of(1)?;
        Ok(self.stack[start])
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>, String> {
        let mark = self.marks.pop().ok_or("the end of a collection that never began: the file is damaged")?;
        Ok(self.stack.split_off(mark))
    }

    fn recall(&mut self, index: u32) -> Result<(), String> {
        let id = *self.memo.get(&index).ok_or_else(|| format!("there is no value of number {index}"))?;
        if self.stack.len() >= MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} values; a checkpoint has far fewer"));
        }
        self.stack.push(id);
        Ok(())
    }

    fn remember(&mut self, index: u32) -> Result<(), String> {
        let top = self.top()?;
        if self.memo.len() >= MOST_VALUES {
            return Err(format!("more than {MOST_VALUES} remembered values; a checkpoint has far fewer"));
        }
        self.memo.insert(index, top);
        Ok(())
    }

    /// Counts items that are put into a collection.
    fn collect(&mut self, items: usize) -> Result<(), String> {
        self.collected += items;
        if self.collected > 2 * MOST_VALUES {
            return Err(format!(
                "its collections have more than {} items; a checkpoint has far fewer",
                2 * MOST_VALUES
            ));
        }
        Ok(())
    }

    fn text(&mut self, length: usize) -> Result<(), String> {
        let text = self.take(length)?;
        self.push(Value::Text(text))
    }

    fn long(&mut self, length: usize) -> Result<(), String> {
        let bytes = self.take(length)?;
        let value = if bytes.len() > 8 {
            Value::LongInteger(bytes)
        } else {
            let sign = if bytes.last().is_some_and(|byte| *byte >= 0x80) { 0xff } else { 0 };
            let mut all = [sign; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            Value::Integer(i64::from_le_bytes(all))
        };
        self.push(value)
    }

    fn append(&mut self, items: Vec<Id>) -> Result<(), String> {
        self.collect(items.len())?;
        let list = self.top()?;
        match &mut self.values[list.place()] {
            Value::List(list) => list.extend(items),
            other => return Err(format!("expected a list, found {other}")),
        }
        Ok(())
    }

    fn insert(&mut self, items: &[Id]) -> Result<(), String> {
        self.collect(items.len())?;
        let dictionary = self.top()?;
        let (pairs, rest) = items.as_chunks::<2>();
        if !rest.is_empty() {
            return Err("a key has no value: the file is damaged".into());
        }
        match &mut self.values[dictionary.place()] {
            Value::Dictionary(dictionary) => dictionary.extend(pairs.iter().map(|[key, value]| (*key, *value))),
            other => return Err(format!("expected a dictionary, found {other}")),
        }
        Ok(())
    }

    fn global(&mut self, module: &str, name: &str) -> Result<(), String> {
        let global = allowed(module, name).ok_or_else(|| refused(module, name))?;
        self.push(Value::Global(global))
    }

    /// The part of a value that `part` takes; `expected` names it.
    fn expect<T>(&self, id: Id, expected: &str, part: impl FnOnce(&Value<'a>) -> Option<T>) -> Result<T, String> {
        let value = &self.values[id.place()];
        part(value).ok_or_else(|| format!("expected {expected}, found {value}"))
    }

    fn items(&self, id: Id) -> Result<&[Id], String> {
        match &self.values[id.place()] {
            Value::Tuple(items) | Value::List(items) => Ok(items),
            other => Err(format!("expected a tuple, found {other}")),
        }
    }

    fn string(&self, id: Id) -> Result<&'a str, String> {
        self.expect(id, "a text", |value| match value {
            Value::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        })
    }

    fn count(&self, id: Id) -> Result<u64, String> {
        self.expect(id, "a number of elements", |value| match value {
            Value::Integer(value) => u64::try_from(*value).ok(),
            _ => None,
        })
    }

    /// The sizes or the strides of a tensor.
    fn sizes(&self, id: Id) -> Result<&[Id], String> {
        let items = self.items(id)?;
        if items.len() > MOST_DIMENSIONS {
            return Err(format!("expected at most {MOST_DIMENSIONS} sizes, found {}", items.len()));
        }
        Ok(items)
    }

    fn counts(&self, id: Id) -> Result<Vec<usize>, String> {
        let count = |id: &Id| usize::try_from(self.count(*id)?).map_err(|_| "a size is beyond memory".to_owned());
        self.sizes(id)?.iter().map(count).collect()
    }

    /// The value that a constructor makes of its arguments.
    fn call(&self, function: Id, arguments: Id) -> Result<Value<'a>, String> {
        let global = self.expect(function, "a class or a function", |value| match value {
            Value::Global(global) => Some(*global),
            _ => None,
        })?;
        let arguments = self.items(arguments)?;
        let missing = || "arguments are missing: the file is damaged".to_owned();
        match global {
            Global::Dictionary => match arguments {
                [] => Ok(Value::Dictionary(Vec::new())),
                [pairs, ..] => self.pairs(*pairs),
            },
            Global::Value(kind) => Ok(Value::Other(kind)),
            Global::Size => Ok(Value::Tuple(match arguments {
                [sizes, ..] => self.sizes(*sizes)?.to_vec(),
                [] => Vec::new(),
            })),
            Global::RebuildTensor => self.tensor(arguments, arguments.get(6), None),
            Global::RebuildTypedTensor => {
                let data_type = self.expect(*arguments.get(6).ok_or_else(missing)?, "an element type", |value| {
                    if let Value::Global(Global::ElementType(data_type)) = value { Some(*data_type) } else { None }
                })?;
                self.tensor(arguments, arguments.get(7), Some(data_type))
            }
            Global::RebuildParameter => {
                let tensor = *arguments.first().ok_or_else(missing)?;
                self.expect(tensor, "a tensor", |value| {
                    matches!(value, Value::Tensor(_) | Value::OtherTensor(_)).then(|| value.clone())
                })
            }
            Global::RebuildFromType => {
                let [function, _class, arguments, ..] = arguments else { return Err(missing()) };
                // Only one level: a subclass of tensors is made of a tensor.
                if self.values[function.place()] == Value::Global(Global::RebuildFromType) {
                    return Err("a subclass of a subclass of tensors is not supported".into());
                }
                self.call(*function, *arguments)
            }
            Global::OtherTensor(kind) => Ok(Value::OtherTensor(kind)),
            Global::ElementType(_) | Global::Storage(_) | Global::Class => {
                Err("a class is called that makes no tensor; it was not run".into())
            }
        }
    }

    /// A dictionary of a list of keys and values.
    fn pairs(&self, list: Id) -> Result<Value<'a>, String> {
        if let Value::Dictionary(entries) = &self.values[list.place()] {
            return Ok(Value::Dictionary(entries.clone()));
        }
        let pair = |id: &Id| match self.items(*id)? {
            [key, value] => Ok((*key, *value)),
            other => Err(format!("expected a key and a value, found {} values", other.len())),
        };
        Ok(Value::Dictionary(self.items(list)?.iter().map(pair).collect::<Result<_, String>>()?))
    }

    /// A tensor of its storage, first element, sizes and strides. `data_type` is that of the elements, if the storage
    /// has none.
    fn tensor(
        &self,
        arguments: &[Id],
        bits: Option<&Id>,
        data_type: Option<Option<DataType>>,
    ) -> Result<Value<'a>, String> {
        let &[storage, first, dims, strides, ..] = arguments else {
            return Err(format!(
                "expected a tensor's storage, place, sizes and strides, found {} values",
                arguments.len()
            ));
        };
        let storage = self.expect(storage, "a storage", |value| match value {
            Value::Storage(storage) => Some(**storage),
            _ => None,
        })?;
        let (first, dims, strides) = (self.count(first)?, self.counts(dims)?, self.counts(strides)?);
        if dims.len() != strides.len() {
            return Err(format!(
                "a tensor has {} sizes and {} strides: the file is damaged",
                dims.len(),
                strides.len()
            ));
        }
        let data_type = data_type.unwrap_or(storage.class.data_type);
        let is_negated = bits.map_or(Ok(false), |bits| self.is_negated(*bits))?;
        Ok(Value::Tensor(Box::new(View { storage, data_type, first, dims, strides, is_negated })))
    }

    /// Whether a tensor's negative bit is set. `bits` are what PyTorch's `get_tensor_metadata` gives: the names of the
    /// bits that are set, each with true.
    fn is_negated(&self, bits: Id) -> Result<bool, String> {
        let set = match &self.values[bits.place()] {
            Value::None => return Ok(false),
            Value::Dictionary(set) => set,
            other => return Err(format!("expected the bits of a tensor as a dictionary, found {other}")),
        };
        for (name, value) in set {
            let name = self.string(*name)?;
            // PyTorch sets every bit that is listed, whatever its value is.
            self.expect(*value, "true for a bit of a tensor", |value| (*value == Value::Boolean(true)).then_some(()))?;
            match name {
                "neg" => {}
                "conj" => {
                    return Err("a tensor's conjugate bit is set, which is for complex numbers; save what its \
                                `resolve_conj()` gives"
                        .into());
                }
                other => return Err(format!("a tensor has the bit `{}`, which is not known", shown(other))),
            }
        }
        Ok(!set.is_empty())
    }

    /// A storage of its reference: the word "storage", its class, its key, its device, and its number of elements.
    fn storage(&self, reference: Id) -> Result<Storage<'a>, String> {
        let items = self.items(reference)?;
        let &[word, class, key, _device, elements, ref view @ ..] = items else {
            return Err(format!("expected the five parts of a storage, found {} values", items.len()));
        };
        let word = self.string(word)?;
        if word != "storage" {
            return Err(format!("expected a reference to a `storage`, found one to a `{}`", shown(word)));
        }
        let class = self.expect(class, "the class of a storage", |value| match value {
            Value::Global(Global::Storage(class)) => Some(*class),
            _ => None,
        })?;
        let (key, all) = (self.string(key)?, self.count(elements)?);
        // A part of a storage has a key of its own, its first element, and its number of elements.
        let (first, elements) = match view.first().map(|view| &self.values[view.place()]) {
            Some(Value::Tuple(part)) => match part.as_slice() {
                [_key, first, elements] => (self.count(*first)?, self.count(*elements)?),
                other => return Err(format!("expected the three parts of a view, found {}", other.len())),
            },
            _ => (0, all),
        };
        if first.checked_add(elements).is_none_or(|end| end > all) {
            return Err(format!("a view ends past the {all} elements of its storage: the file is damaged"));
        }
        Ok(Storage { key, class, elements, first })
    }
}

fn refused(module: &str, name: &str) -> String {
    format!(
        "it asks for `{}.{}`, which is not one of the constructors of tensors and containers that a checkpoint needs; \
         nothing was run",
        shown(module),
        shown(name)
    )
}

/// The beginning of a text, without control characters.
fn shown(text: &str) -> String {
    text.chars().take(100).collect::<String>().escape_debug().to_string()
}

/// The opcodes that no pickle of tensors has, by their names in `pickletools.py`.
fn opcode_name(opcode: u8) -> String {
    let name = match opcode {
        b'0' => "POP",
        b'1' => "POP_MARK",
        b'2' => "DUP",
        b'F' => "FLOAT",
        b'I' => "INT",
        b'L' => "LONG",
        b'P' => "PERSID",
        b'S' => "STRING",
        b'V' => "UNICODE",
        b'd' => "DICT",
        b'g' => "GET",
        b'l' => "LIST",
        b'o' => "OBJ",
        b'p' => "PUT",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x92 => "NEWOBJ_EX",
        0x96 => "BYTEARRAY8",
        0x97 => "NEXT_BUFFER",
        0x98 => "READONLY_BUFFER",
        _ => return format!("{opcode:#04x}"),
    };
    name.into()
}
