package protocol

import "strings"

// The names that are made of a key.
const (
	fenceSuffix   = ":locco-fence" // the counter of its fences
	channelSuffix = ":locco-free"  // the channel that says that it is free
	markSuffix    = ":locco-mark"  // the highest fence that a resource has seen
)

// FenceKey returns the key that counts the fences of key. It hashes to the slot
// of key if [SharesSlot] says so.
func FenceKey(key string) string { return beside(key, fenceSuffix) }

// Channel returns the channel on which a release of key is published. It hashes to the
// slot of key: where no name made of the key does ([SharesSlot]), it is the key's own.
func Channel(key string) string {
	if !SharesSlot(key) {
		return key
	}
	return beside(key, channelSuffix)
}

// MarkKey returns the key beside resource that has the highest fence seen there.
func MarkKey(resource string) string { return beside(resource, markSuffix) }

func beside(key, suffix string) string {
	if _, tagged := HashTag(key); tagged {
		return key + suffix
	}
	return "{" + key + "}" + suffix
}

// SharesSlot tells whether what is kept beside key hashes to the same slot of a
// Cluster: not so for a key with a "}" but without a hash tag.
func SharesSlot(key string) bool {
	_, tagged := HashTag(key)
	return tagged || strings.IndexByte(key, '}') < 0
}

// HashTag returns the part of key that a Cluster hashes, if that is not all of it:
// what stands between the first "{" and the next "}", unless that is nothing.
func HashTag(key string) (tag string, tagged bool) {
	_, rest, found := strings.Cut(key, "{")
	if !found {
		return "", false
	}
	tag, _, found = strings.Cut(rest, "}")
	return tag, found && tag != ""
}

// Slots is the number of slots of a Cluster.
const Slots = 1 << 14

// Slot returns the slot of key.
func Slot(key string) uint16 {
	if tag, tagged := HashTag(key); tagged {
		key = tag
	}
	var crc uint16 // CRC-16/XMODEM
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc % Slots
}
