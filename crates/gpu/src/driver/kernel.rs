//! The device code: one module per context, functions by name, launches with 64-bit parameters.

use std::ffi::{CStr, c_void};
use std::ptr;

use super::{Driver, Stream};
use crate::status::GpuError;

/// A loaded image (`CUmodule`); it lives as long as its context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Module(*mut c_void);

/// A kernel (`CUfunction`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Function(*mut c_void);

/// More parameters than any kernel here takes.
const MOST_PARAMETERS: usize = 12;

impl Driver {
    /// Compiles the image for the current context's device.
    pub(crate) fn load_module(&self, image: &CStr) -> Result<Module, GpuError> {
        let mut module = ptr::null_mut();
        // SAFETY: the image ends with a zero byte, as text images must.
        let code =
            unsafe { (self.symbols.module_load_data)(&raw mut module, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", code)?;
        Ok(Module(module))
    }

    pub(crate) fn function(&self, module: Module, name: &CStr) -> Result<Function, GpuError> {
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded and the name ends with a zero byte.
        let code = unsafe {
            (self.symbols.module_get_function)(&raw mut function, module.0, name.as_ptr())
        };
        self.check("cuModuleGetFunction", code)?;
        Ok(Function(function))
    }

    /// Queues a launch of `blocks` × `threads`. Every kernel of ours takes 64-bit parameters only;
    /// `parameters` must be as many as the kernel declares (`kernels.rs` is the only caller).
    pub(crate) fn launch(
        &self,
        function: Function,
        (blocks, threads): (u32, u32),
        parameters: &[u64],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let mut values = [0_u64; MOST_PARAMETERS];
        let mut pointers = [ptr::null_mut::<c_void>(); MOST_PARAMETERS];
        for ((value, pointer), parameter) in values.iter_mut().zip(&mut pointers).zip(parameters) {
            *value = *parameter;
            *pointer = ptr::from_mut(value).cast();
        }
        // SAFETY: the driver copies the parameters during the call; both arrays are live and hold
        // at least as many entries as the kernel has parameters.
        let code = unsafe {
            (self.symbols.launch_kernel)(
                function.0,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.raw(),
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        self.check("cuLaunchKernel", code)
    }
}
