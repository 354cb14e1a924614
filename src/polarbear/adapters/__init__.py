"""A stream as other libraries like it: one small module per library, imported when it is wanted.

===================  =================================================  ============================
module               gives                                              extra
===================  =================================================  ============================
pytorch              Dataset and DataLoader                             polarbear-iirc[torch]
tf_data              tf.data.Dataset                                    polarbear-iirc[tensorflow]
jax_arrays           arrays and batches on a device                     polarbear-iirc[jax]
grain_source         grain.MapDataset of images or of batches           polarbear-iirc[jax]
hugging_face         datasets.Dataset                                   polarbear-iirc[datasets]
hugging_face_source  two datasets.Dataset as a data source              polarbear-iirc[datasets]
torch_metric         pw-JS as a torchmetrics.Metric                     polarbear-iirc[torchmetrics]
avalanche            a benchmark with train, valid and test streams     polarbear-iirc[avalanche]
continuum            a scenario of task sets                            polarbear-iirc[continuum]
===================  =================================================  ============================

All of them take rows and labels from the same :class:`polarbear.View`: images are uint8 as they
are stored (Continuum gives floats in 0..1, as it does), labels a 0/1 matrix (n, seen classes), for
Avalanche and Continuum with a column for every class of the stream.
"""
