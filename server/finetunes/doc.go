// Package finetunes runs the fine-tuning jobs of users: it checks what they ask
// for, queues it, has the engine train, keeps what it reports, and registers what
// comes of it.
//
// # Words
//
//   - A job is a resource.FineTune; its work is an entry of the durable queue.
//   - Parameters are what the client asked for; settings are these with every
//     default filled in, which is what a job keeps and what responses show.
//   - A model's traits are what training needs to know of it; its limits bound the
//     settings of jobs on it.
//   - A checkpoint is a state of the weights that the training saved on its way;
//     the result is the one that was selected at the end.
//   - A lineage says what a model was made of, by hashes.
//
// # The life of a job
//
//	POST -> pending -> queued -> running -> compressing -> uploading -> completed
//	           |          ^         |            |             |
//	           |          +--lost---+            |             |
//	           +----------+---------+------------+-------------+--> error
//	           +----------+---------+------------+-------------+--> cancel_requested -> cancelled
//
// A pending job is admitted by an entry of the queue of its own, so that what is
// queued waits only for the machine. When the process that trained goes away, a
// running job is queued again; a job that is compressing or uploading stays so and
// does that part again. The engine keeps the state of the training in the job's
// directory, <data>/training/<id>, which goes when the job is final.
//
// # What is reported twice
//
// A resumed training reports again what it did since its last saved state. Rows of
// metrics replace each other by step. Each event happens once in a job, by a name
// that the record keeps, except job_restarted. Rows and progress are written about
// once a second and with every change of state: a crash loses only what is reported
// again.
//
// # Results
//
// The weights are stored by content and named by a record in one transaction. A job
// with LoRA gives an adapter, which is served on the resident weights of its base
// under the name of the job; "<name>-adapter" means the same. The merged weights are
// kept as files for download, without a model of their own, until the job is
// deleted. A job that starts from a hub repository gives the merged weights as the
// model, since no registered model is its base.
//
// # Invariants
//
//   - Everything is scoped to the project of the key.
//   - Secrets are kept apart from the job until it is final; no response, event,
//     log or error has them.
//   - A job that is final has no entry in the queue, no directory and no secrets.
package finetunes
