//! What the runtime does with engines of every task, through the programs and against the references.

mod autoencoder;
mod depth;
mod faces;
mod inpaint;
mod measuring;
mod realtime;
mod run;
