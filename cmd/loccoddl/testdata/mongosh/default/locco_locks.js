// locco indexes for MongoDB
// loccoddl mongo -collection=locco-locks
db.runCommand({
  "createIndexes": "locco-locks",
  "indexes": [
    {
      "key": {
        "key": 1
      },
      "name": "key_1",
      "unique": true
    },
    {
      "key": {
        "expireAt": 1
      },
      "name": "expireAt_1",
      "expireAfterSeconds": 0
    }
  ]
});
