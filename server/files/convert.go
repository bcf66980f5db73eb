package files

import (
	"athanor/server/api"
	"athanor/server/files/dataset"
	"athanor/store/resource"
)

// wire renders a file.
func wire(f *resource.File) api.File {
	out := api.File{
		ID: string(f.ID), Object: "file", CreatedAt: f.CreatedAt.Unix(), Filename: f.Name, Bytes: f.Size,
		Purpose: string(f.Purpose), Processed: f.Here(), FileType: string(f.Type), ProcessingStatus: string(f.Status),
	}
	if f.ExpiresAt != nil {
		at := f.ExpiresAt.Unix()
		out.ExpiresAt = &at
	}
	if f.Report != nil {
		out.LineCount = f.Report.Lines
		out.ValidationReport = wireReport(f)
	} else if f.Status == resource.FileFailed {
		out.ValidationReport = &api.FileReport{FileID: string(f.ID)}
	}
	return out
}

func wireReport(f *resource.File) *api.FileReport {
	r := f.Report
	out := &api.FileReport{
		Valid: r.Valid, DatasetFormat: r.Format, HasSampleWeights: r.HasSampleWeights, HasMessageWeights: r.HasMessageWeights,
		IsMultimodal: r.Multimodal, HasTools: r.HasTools, HasParallelToolCalls: r.HasParallelToolCalls, HasReasoning: r.HasReasoning,
		NLines: r.Lines, DuplicateLines: r.Duplicates, FileID: string(f.ID), ErrorCount: r.Errors,
	}
	for _, p := range r.Problems {
		out.Errors = append(out.Errors, p.String())
	}
	if !r.Valid {
		out.ErrorType = string(resource.FileInvalid)
		out.Error = r.Problems[0].String()
	}
	return out
}

// record turns what a check found into what is stored.
func record(r *dataset.Report) *resource.FileReport {
	out := &resource.FileReport{
		Valid: r.Valid(), Format: r.Format, HasSampleWeights: r.HasSampleWeights, HasMessageWeights: r.HasMessageWeights,
		Multimodal: r.Multimodal, HasTools: r.HasTools, HasParallelToolCalls: r.HasParallelToolCalls, HasReasoning: r.HasReasoning,
		Lines: r.Lines, Duplicates: r.Duplicates, Errors: r.Errors,
	}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, resource.FileProblem{Line: p.Line, Reason: p.Reason})
	}
	return out
}
