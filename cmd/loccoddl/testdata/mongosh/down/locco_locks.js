// locco indexes for MongoDB
// loccoddl mongo -collection=locco-locks
db.runCommand({
  "dropIndexes": "locco-locks",
  "index": [
    "key_1",
    "expireAt_1"
  ]
});
