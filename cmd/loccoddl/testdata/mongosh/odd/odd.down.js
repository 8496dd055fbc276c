// locco indexes for MongoDB
// loccoddl mongo -collection=my "locks"
db.runCommand({
  "dropIndexes": "my \"locks\"",
  "index": [
    "key_1",
    "expireAt_1"
  ]
});
