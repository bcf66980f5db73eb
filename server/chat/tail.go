package chat

import "athanor/server/api"

// tail sends chunks, holding back one that ends a choice until it is known
// whether it is the last, because the last one carries the usage.
type tail[C any] struct {
	send func(any) error
	held *C
}

// hold keeps c for later; whatever was held is sent first.
func (t *tail[C]) hold(c *C) error {
	err := t.flush()
	t.held = c
	return err
}

// pass sends c now, after what is held.
func (t *tail[C]) pass(c *C) error {
	if err := t.flush(); err != nil {
		return err
	}
	return t.send(c)
}

// end sends what is held with the usage in it, and then, when the request asks
// for it, one more chunk that carries nothing else.
func (t *tail[C]) end(setUsage func(*C), o *api.StreamOptions, alone func() *C) error {
	if t.held != nil {
		setUsage(t.held)
	}
	if err := t.flush(); err != nil || o == nil || !o.IncludeUsage {
		return err
	}
	c := alone()
	setUsage(c)
	return t.send(c)
}

func (t *tail[C]) flush() error {
	if t.held == nil {
		return nil
	}
	c := t.held
	t.held = nil
	return t.send(c)
}
