package resource

// Ids of records. Their values are made elsewhere and are opaque here.
type (
	OrganizationID string // of an Organization
	ProjectID      string // of a Project; "" on a model means every project
	UserID         string // of a User
	KeyID          string // of an APIKey; never the secret
	ModelID        string // of a Model, "model-..."
	FileID         string // of a File, "file-..."
	UploadID       string // of an Upload, "upload-..."
	JobID          string // of a Job, "job-..."
	FineTuneID     string // of a FineTune, "ft-..."
	EndpointID     string // of the endpoint that serves a model, "endpoint-<uuid>"
)
