package resource

import (
	"slices"
	"time"
)

// Upload is a multi-part upload under way. It ends by completion or abortion,
// which delete it.
type Upload struct {
	ID        UploadID   `json:"id"`
	FileID    FileID     `json:"file_id"`
	ProjectID ProjectID  `json:"project_id"`
	Size      int64      `json:"size"`      // bytes of the whole file, as announced
	NumParts  int        `json:"num_parts"` // as announced
	Parts     []FilePart `json:"parts,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
}

// Put notes a part that has arrived, in its place by number, and returns the one
// that it replaces, nil if there was none.
func (u *Upload) Put(p FilePart) (replaced *FilePart) {
	i, found := slices.BinarySearchFunc(u.Parts, p.Number, func(a FilePart, n int) int { return a.Number - n })
	if found {
		old := u.Parts[i]
		u.Parts[i] = p
		return &old
	}
	u.Parts = slices.Insert(u.Parts, i, p)
	return nil
}
