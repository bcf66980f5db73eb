package store

import (
	"fmt"

	"athanor/store/resource"
)

// Names of the indexes of the tables below.
const (
	BySlug         = "slug"
	ByOrganization = "organization"
	ByProject      = "project"
	ByUser         = "user"
	ByHash         = "hash"
	ByName         = "name"
	ByCreated      = "created"
	ByEndpoint     = "endpoint"
	ByDue          = "due"
	ByRunning      = "running"
	BySubject      = "subject"
)

// The tables of the appliance. The comment of an index is its key; keys that end
// in a time list the oldest first.
var (
	// Organizations by OrganizationID.
	Organizations = NewTable[resource.Organization]("organizations")

	// Projects by ProjectID.
	Projects = NewTable("projects",
		// organisation, slug
		unique(BySlug, func(p *resource.Project) []byte { return Key(string(p.OrganizationID), p.Slug) }),
		// organisation, time
		index(ByOrganization, func(p *resource.Project) []byte {
			return Key(string(p.OrganizationID), TimeKey(p.CreatedAt))
		}),
	)

	// Users by UserID.
	Users = NewTable("users",
		// organisation, time
		index(ByOrganization, func(u *resource.User) []byte {
			return Key(string(u.OrganizationID), TimeKey(u.CreatedAt))
		}),
	)

	// Memberships by resource.MembershipID.
	Memberships = NewTable("memberships",
		// project, user
		unique(ByProject, func(m *resource.Membership) []byte { return Key(string(m.ProjectID), string(m.UserID)) }),
		// user, project
		unique(ByUser, func(m *resource.Membership) []byte { return Key(string(m.UserID), string(m.ProjectID)) }),
	)

	// Keys by KeyID.
	Keys = NewTable("keys",
		// hash of the secret
		unique(ByHash, func(k *resource.APIKey) []byte { return k.Hash }),
		// project, time
		index(ByProject, func(k *resource.APIKey) []byte { return Key(string(k.ProjectID), TimeKey(k.CreatedAt)) }),
	)

	// Models by ModelID. The project of a model that all may see is "".
	Models = NewTable("models",
		// project, name or alias
		Index[resource.Model]{Name: ByName, Unique: true, Key: func(m *resource.Model) [][]byte {
			keys := [][]byte{Key(string(m.ProjectID), m.Name)}
			for _, alias := range m.Aliases {
				keys = append(keys, Key(string(m.ProjectID), alias))
			}
			return keys
		}},
		// endpoint
		unique(ByEndpoint, func(m *resource.Model) []byte { return []byte(m.EndpointID) }),
		// project, time
		index(ByProject, func(m *resource.Model) []byte { return Key(string(m.ProjectID), TimeKey(m.CreatedAt)) }),
		// time
		index(ByCreated, func(m *resource.Model) []byte { return Key(TimeKey(m.CreatedAt)) }),
	)

	// Files by FileID.
	Files = NewTable("files",
		// project, time
		index(ByProject, func(f *resource.File) []byte { return Key(string(f.ProjectID), TimeKey(f.CreatedAt)) }),
	)

	// Uploads by UploadID.
	Uploads = NewTable[resource.Upload]("uploads")

	// FineTunes by FineTuneID.
	FineTunes = NewTable("finetunes",
		// project, time: those that are not deleted
		index(ByProject, func(f *resource.FineTune) []byte {
			if f.Deleted {
				return nil
			}
			return Key(string(f.ProjectID), TimeKey(f.CreatedAt))
		}),
		// project, name of the model that comes of it: as above
		unique(ByName, func(f *resource.FineTune) []byte {
			if f.Deleted {
				return nil
			}
			return Key(string(f.ProjectID), f.OutputName)
		}),
	)

	// FineTuneSecrets by FineTuneID.
	FineTuneSecrets = NewTable[resource.FineTuneSecrets]("finetune-secrets")

	// FineTuneMetrics by FineTuneMetricsID; the order of ids is that of the steps.
	FineTuneMetrics = NewTable[resource.FineTuneMetrics]("finetune-metrics")

	// Jobs by JobID: the queue.
	Jobs = NewTable("jobs",
		// kind, time: those that wait
		index(ByDue, func(j *resource.Job) []byte {
			if j.Status != resource.JobQueued {
				return nil
			}
			return Key(j.Kind, TimeKey(j.DueAt))
		}),
		// kind: those that somebody works on
		index(ByRunning, func(j *resource.Job) []byte {
			if j.Status != resource.JobRunning {
				return nil
			}
			return Key(j.Kind)
		}),
		// subject, kind
		index(BySubject, func(j *resource.Job) []byte { return Key(j.Subject, j.Kind) }),
	)
)

// FineTuneMetricsID is the id of a row of metrics. Rows of one job sort by step,
// and the evaluation after a step behind it.
func FineTuneMetricsID(job resource.FineTuneID, step int, eval bool) string {
	kind := "t"
	if eval {
		kind = "v"
	}
	return fmt.Sprintf("%s %012d%s", job, step, kind)
}

// builtin lists the tables above for Check.
func builtin() []Checked {
	return []Checked{Organizations, Projects, Users, Memberships, Keys, Models, Files, Uploads, FineTunes, FineTuneSecrets, FineTuneMetrics, Jobs}
}

// index describes an index of one key per record.
func index[T any](name string, key func(*T) []byte) Index[T] {
	return Index[T]{Name: name, Key: single(key)}
}

// unique describes a unique index of one key per record.
func unique[T any](name string, key func(*T) []byte) Index[T] {
	return Index[T]{Name: name, Unique: true, Key: single(key)}
}

// single leaves a record with an empty key out of its index.
func single[T any](key func(*T) []byte) func(*T) [][]byte {
	return func(v *T) [][]byte {
		if k := key(v); len(k) > 0 {
			return [][]byte{k}
		}
		return nil
	}
}
