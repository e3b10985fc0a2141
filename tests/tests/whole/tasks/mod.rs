//! The runtime with engines of every task, through the programs and compared with the references.

mod autoencoder;
mod depth;
mod faces;
mod inpaint;
mod measuring;
mod realtime;
mod run;
