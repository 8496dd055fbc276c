// Package pubsub is for authors of backends whose store can publish that a key is free:
// a [Hub] makes of one subscribed connection what [locco.Watcher] asks for.
//
// All watches share the connection. It is opened at the first and closed a second after
// the last; one that broke is opened again in the background, less and less often while
// that fails, and every watcher is then woken once, since a message may have been
// missed.
package pubsub
