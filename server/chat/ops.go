package chat

import "athanor/server/rest"

// maxBody is generous for long conversations and small against abuse.
const maxBody = 16 << 20

// Ops are the operations of this slice.
func (s *Service) Ops() []rest.Op {
	return []rest.Op{
		rest.PostStream("/chat/completions", "chat", rest.AnyKey, s.Chat, rest.Inference(), rest.BodyLimit(maxBody)),
		rest.PostStream("/completions", "completion", rest.AnyKey, s.Complete, rest.Inference(), rest.BodyLimit(maxBody)),
	}
}
