import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's Java client, doing what load.py does: BOOTSTRAP TOPIC SECONDS COMMIT_EVERY_MS SIZE. */
public final class TransactionLoad {
    private final KafkaProducer<byte[], byte[]> producer;
    private final String topic;
    private final byte[] payload;

    private TransactionLoad(String bootstrap, String topic, int size) {
        Properties config = new Properties();
        config.put("bootstrap.servers", bootstrap);
        config.put("transactional.id", "bench-" + topic);
        this.producer =
            new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
        this.topic = topic;
        this.payload = new byte[size];
        Arrays.fill(payload, (byte) 'x');
    }

    public static void main(String[] arguments) {
        TransactionLoad load =
            new TransactionLoad(arguments[0], arguments[1], Integer.parseInt(arguments[4]));
        load.run(Double.parseDouble(arguments[2]), Double.parseDouble(arguments[3]));
    }

    private void run(double seconds, double commitEveryMs) {
        producer.initTransactions();
        oneTransaction(0); // the coordinator and leaders are known now
        long records = 0;
        long transactions = 0;
        long start = System.nanoTime();
        while (System.nanoTime() - start < seconds * 1e9) {
            records += oneTransaction((long) (commitEveryMs * 1e6));
            transactions++;
        }
        double taken = (System.nanoTime() - start) / 1e9;
        producer.close();
        System.out.printf(
            "{\"seconds\": %f, \"records\": %d, \"transactions\": %d}%n",
            taken, records, transactions);
    }

    private long oneTransaction(long lastsNs) {
        producer.beginTransaction();
        long end = System.nanoTime() + lastsNs;
        long count = 0;
        do {
            producer.send(new ProducerRecord<>(topic, payload));
            count++;
        } while (lastsNs > 0 && System.nanoTime() < end);
        producer.commitTransaction();
        return count;
    }
}
