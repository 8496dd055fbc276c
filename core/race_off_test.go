//go:build !race

package locco_test

// raceDetector tells whether the tests run under the race detector.
const raceDetector = false
