package mongo

// Option is an option of [New]. Options are made by the With… functions.
type Option interface {
	apply(c *config)
}

// config is what New collects.
type config struct {
	keepSchema bool
}

type option func(c *config)

func (o option) apply(c *config) { o(c) }

// WithoutSetUp creates no index. The first use checks that the unique one is there, and
// is a validation error that says what is missing if it is not. The default is to create
// the indexes of [Indexes] at first use where they are missing.
func WithoutSetUp() Option {
	return option(func(c *config) { c.keepSchema = true })
}
